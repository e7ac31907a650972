/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The floors of a benchmark: what a kernel interface gives to a program that has no protocol.  There
 * are no acknowledgements and no window, and a packet that is lost is lost.
 *
 *   main.c  the tests: ping-pong, flood, and carry, which is a flood that carries a payload
 *   carry.c its payload: copied in and out, with an ICRC
 *   xdp.c   messages as frames of an AF_XDP socket, which one program uses alone
 *   udp.c   messages as datagrams of a UDP socket, with segmentation offload both ways
 */
#ifndef DP_FLOOR_H
#define DP_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"

enum {
	FLOOR_BATCH = 64, /* messages that one call moves at most */
	FLOOR_SIZE_MIN = 32,
	FLOOR_CARRIED = 1 << 20, /* bytes of the memory that payload comes from, and goes to */
	FLOOR_XDP_SIZE_MAX = 8064,
	FLOOR_XDP_CARRIED_MAX = 7604, /* arrives in two chunks */
	FLOOR_UDP_SIZE_MAX = 8972,
};

enum floor_kind {
	FLOOR_PING = 1,
	FLOOR_PONG,
	FLOOR_DATA,
	FLOOR_END,    /* the client has nothing more to send */
	FLOOR_REPORT, /* the server's answer to it */
};

/* The first bytes of each message; what follows is padding.  Both programs run on one machine, so
 * the byte order is that of the machine. */
struct floor_message {
	uint32_t magic, kind;
	uint64_t number;    /* of a ping and its pong; in a report: messages received */
	uint64_t lasted_ns; /* in a report: from the first message to the last one */
};

#define FLOOR_MAGIC 0x666c6f72u

struct floor_socket;

struct floor_ops {
	uint32_t size_max;
	/* Sends up to FLOOR_BATCH messages; returns how many the kernel has taken. */
	int (*send)(struct floor_socket *, const struct floor_message *, int n);
	/* Does not wait.  Returns how many messages, at most FLOOR_BATCH, have come. */
	int (*receive)(struct floor_socket *, struct floor_message *);
	void (*close)(struct floor_socket *);
};

/* The beginning of the socket of each kind. */
struct floor_socket {
	const struct floor_ops *ops;
	int fd; /* readable when messages wait */
};

struct floor_setup {
	const char *netdev;
	const char *local, *peer; /* addresses */
	uint32_t size;		  /* bytes of a message: the payload of UDP */
	bool carries;		  /* messages have a payload, and an ICRC behind it */
};

/* Zeroed: nothing is carried. */
struct floor_carrier {
	uint8_t *memory;
	uint32_t at;
	struct dp_packet out, in; /* what the ICRC takes of the headers */
};

void floor_carrier_open(struct floor_carrier *, const struct floor_setup *);
void floor_carrier_close(struct floor_carrier *);
/* Puts a payload and its ICRC behind the struct floor_message of a message of `size` bytes. */
void floor_load(struct floor_carrier *, uint8_t *message, uint32_t size);
/* Copies the payload of a message of one or two pieces out; false: its ICRC is wrong. */
bool floor_unload(struct floor_carrier *, uint8_t *message, uint32_t size, const uint8_t *rest,
		  uint32_t rest_len);

extern const struct floor_ops floor_xdp_ops, floor_udp_ops;

/* Both end the program with one line for the user when the socket cannot be made. */
struct floor_socket *floor_xdp_open(const struct floor_setup *);
struct floor_socket *floor_udp_open(const struct floor_setup *);

/* Ends the program. */
_Noreturn void floor_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
