// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Connections by shared memory, between ranks of a host.
 *
 * The memory that peers write to is a memfd, so a rank of the same host can have it in its own
 * address space.  There it writes what it would else have a QP write: DATA into a slot, a counter,
 * an error.  In place of an immediate it appends a message to a ring in the same memory; credits
 * bound how many messages wait there.  A rank that sleeps says so in its memory, and the next one
 * that writes a message to it rings its bell, which is a pipe.  The pipe of a process that has
 * ended has no reader, which poll() tells.
 *
 * Memory and pipe are opened through /proc/PID/fd, where the kernel looks whether this process may.
 * So nothing has a name, and nothing is left behind.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/live/coll.h"

enum { RING = COLL_RECEIVES };

/* ---- who shares the memory of this host ------------------------------------------- */

static uint64_t inode_of(const char *path)
{
	struct stat about;

	return stat(path, &about) ? 0 : about.st_ino;
}

/* A number that stands for this boot of the machine; 0: not known. */
static uint64_t boot_number(void)
{
	char text[64] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	bool got = file && fgets(text, sizeof(text), file);

	if (file)
		fclose(file);
	return got ? coll_digest(COLL_DIGEST_OF_NOTHING, text, strlen(text)) : 0;
}

int coll_shared_identity(struct dpcoll *comm, struct coll_identity *own)
{
	if (getrandom(&comm->shared->nonce, sizeof(comm->shared->nonce), 0) < 0)
		return coll_fail(comm, errno, "random number: %s", strerror(errno));
	own->boot = boot_number();
	own->processes = inode_of("/proc/self/ns/pid");
	own->network = inode_of("/proc/self/ns/net");
	own->nonce = comm->shared->nonce;
	own->base = (uintptr_t)comm->memory;
	own->bytes = comm->memory_bytes;
	own->pid = (uint32_t)getpid();
	own->memory_fd = (uint32_t)comm->memory_fd;
	own->bell_fd = (uint32_t)comm->bell[1];
	own->node = comm->cfg.node;
	return 0;
}

/* Namespaces stand for hosts, unless ranks say by a number which of them share one. */
static bool near(const struct coll_identity *a, const struct coll_identity *b)
{
	if (!a->boot || a->boot != b->boot || !a->processes || a->processes != b->processes ||
	    a->node == DPCOLL_NODE_ALONE || a->node != b->node)
		return false;
	return a->node || (a->network && a->network == b->network);
}

/* ---- the memory and the bell of another rank -------------------------------------- */

static int open_of(const struct coll_identity *peer, uint32_t fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/fd/%u", peer->pid, fd);
	return open(path, flags | O_CLOEXEC);
}

/* The owner cannot shrink sealed memory, so an access never faults. */
static bool is_whole(int fd, uint64_t bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat about;

	return seals > 0 && (seals & F_SEAL_SHRINK) && !fstat(fd, &about) &&
	       (uint64_t)about.st_size == bytes && bytes >= sizeof(struct coll_shared);
}

static bool map(struct coll_neighbour *n, const struct coll_identity *peer)
{
	int fd = open_of(peer, peer->memory_fd, O_RDWR);
	void *at = MAP_FAILED;

	if (fd >= 0 && is_whole(fd, peer->bytes))
		at = mmap(NULL, peer->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (at == MAP_FAILED)
		return false;
	n->memory = at;
	n->bytes = peer->bytes;
	/* Another process may have the number by now. */
	return ((struct coll_shared *)at)->nonce == peer->nonce;
}

static bool reach(struct coll_neighbour *n, const struct coll_identity *peer)
{
	struct stat about;

	n->pid = peer->pid;
	if (!map(n, peer))
		return false;
	n->bell = open_of(peer, peer->bell_fd, O_WRONLY | O_NONBLOCK);
	return n->bell >= 0 && !fstat(n->bell, &about) && S_ISFIFO(about.st_mode);
}

static void leave(struct coll_neighbour *n)
{
	if (n->memory)
		munmap(n->memory, n->bytes);
	if (n->bell >= 0)
		close(n->bell);
}

bool coll_shared_reach(struct dpcoll *comm, const struct coll_identity *all)
{
	const struct coll_identity *own = &all[comm->cfg.rank];

	comm->neighbour = calloc(comm->cfg.ranks, sizeof(*comm->neighbour));
	if (!comm->neighbour)
		return false;
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		uint32_t peer = comm->conn[i].peer;
		struct coll_neighbour n = { .rank = peer, .bell = -1 };

		if (!coll_is_watched(comm, &comm->conn[i]) || !near(own, &all[peer]))
			continue;
		if (!reach(&n, &all[peer])) {
			leave(&n);
			return false;
		}
		comm->neighbour[comm->n_neighbours++] = n;
	}
	return true;
}

void coll_shared_leave(struct dpcoll *comm)
{
	for (uint32_t i = 0; i < comm->n_neighbours; i++)
		leave(&comm->neighbour[i]);
	free(comm->neighbour);
	comm->neighbour = NULL;
	comm->n_neighbours = 0;
}

struct coll_neighbour *coll_shared_with(struct dpcoll *comm, uint32_t peer)
{
	for (uint32_t i = 0; i < comm->n_neighbours; i++)
		if (comm->neighbour[i].rank == peer)
			return &comm->neighbour[i];
	return NULL;
}

static void *seen_from_here(const struct coll_neighbour *n, const struct coll_identity *peer,
			    uint64_t address, uint64_t bytes)
{
	uint64_t offset = address - peer->base;

	return offset <= n->bytes && bytes <= n->bytes - offset ? n->memory + offset : NULL;
}

int coll_shared_connect(struct dpcoll *comm, struct coll_conn *conn,
			const struct coll_identity *peer)
{
	struct coll_neighbour *n = conn->neighbour;
	uint64_t slots = (uint64_t)comm->slot_bytes * COLL_SLOTS;

	conn->far_slots = seen_from_here(n, peer, conn->theirs.slots, slots);
	conn->far = seen_from_here(n, peer, conn->theirs.mailbox, sizeof(*conn->far));
	if (!conn->far_slots || !conn->far || (uintptr_t)conn->far % _Alignof(uint64_t))
		return coll_fail(comm, EPROTO, "rank %u names memory that it does not have",
				 conn->peer);
	return 0;
}

/* ---- messages --------------------------------------------------------------------- */

static void ring_bell(struct coll_neighbour *n)
{
	struct coll_shared *far = (struct coll_shared *)n->memory;

	/* Whoever goes to sleep says so, and then looks for messages; here it is the other way
	 * round.  So one of the two sees what the other has written. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&far->asleep, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&far->asleep, 0, __ATOMIC_RELAXED) && write(n->bell, "", 1) < 0)
		return; /* the pipe is full: it has been rung; or has no reader, which poll() tells */
}

void coll_shared_message(struct coll_conn *conn, uint64_t message)
{
	struct coll_peer_memory *far = conn->far;
	uint64_t number = conn->messages_sent++;

	__atomic_store_n(&far->message[number % RING], message, __ATOMIC_RELAXED);
	__atomic_store_n(&far->messages, number + 1, __ATOMIC_RELEASE);
	ring_bell(conn->neighbour);
}

int coll_shared_receive(struct dpcoll *comm, struct coll_conn *conn, uint64_t *message)
{
	struct coll_peer_memory *near_end = conn->memory;
	uint64_t messages = __atomic_load_n(&near_end->messages, __ATOMIC_ACQUIRE);

	if (messages == conn->messages_taken)
		return 0;
	if (messages - conn->messages_taken > RING)
		return coll_fail(comm, EPROTO, "rank %u sends more than it may", conn->peer);
	*message = __atomic_load_n(&near_end->message[conn->messages_taken++ % RING],
				   __ATOMIC_RELAXED);
	return 1;
}

/* ---- sleep ------------------------------------------------------------------------ */

bool coll_shared_doze(struct dpcoll *comm)
{
	bool waits = false;

	if (!comm->n_neighbours)
		return true;
	__atomic_store_n(&comm->shared->asleep, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < comm->n_conns; i++) {
		const struct coll_conn *conn = &comm->conn[i];

		waits |= conn->neighbour &&
			 __atomic_load_n(&conn->memory->messages, __ATOMIC_ACQUIRE) !=
				 conn->messages_taken;
	}
	return !waits;
}

void coll_shared_wake(struct dpcoll *comm)
{
	char rings[64];

	if (!comm->n_neighbours)
		return;
	__atomic_store_n(&comm->shared->asleep, 0, __ATOMIC_RELAXED);
	while (read(comm->bell[0], rings, sizeof(rings)) == sizeof(rings))
		;
}
