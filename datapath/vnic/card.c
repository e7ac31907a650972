// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "vnic/card.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/netdev.h"
#include "io/trust.h"

/* ---- opening ----------------------------------------------------------------------------- */

static int load_cc(struct card *card, const char *path, char *why, size_t size)
{
	char *real = realpath(path, NULL);
	int err = real ? dp_trust_check(real, why, size) : -errno;

	if (!real) {
		snprintf(why, size, "%s: %s", path, strerror(-err));
	} else if (!err) {
		card->cc_library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
		if (card->cc_library) {
			err = dp_trust_algorithm(card->cc_library, path, &card->cc, why, size);
		} else {
			snprintf(why, size, "%s", dlerror());
			err = -ENOEXEC;
		}
	}
	free(real);
	return err;
}

int card_open_network(struct card *card, const struct card_options *opt, char *why, size_t size)
{
	const struct dp_device_options options = {
		.name = "vnic",
		.no_thread = true,
		.ecn = opt->ecn,
		.on_event = tunnel_event,
	};
	int err = opt->cc ? load_cc(card, opt->cc, why, size) : 0;

	if (err)
		return err;
	err = dp_device_open(opt->port, &options, &card->device, why, size);
	if (!err)
		card->engine = dp_device_engine(card->device);
	return err;
}

/* ---- starting ----------------------------------------------------------------------------- */

static int open_guest(struct card *card, struct dp_raw_port *p, char *why, size_t size)
{
	struct dp_port_info info = {};
	struct dp_error error = { why, size };

	if (dp_netdev_query(p->name, &info, &error))
		return -ENODEV;
	if (!dp_netdev_is_up(p->name)) {
		snprintf(why, size, "%s is down: ip link set %s up", p->name, p->name);
		return -ENETDOWN;
	}
	if (info.netdev_mtu < card->mtu) {
		snprintf(why, size,
			 "MTU %u of %s is less than the guests' of %u: ip link set %s mtu %u",
			 info.netdev_mtu, p->name, card->mtu, p->name, card->mtu);
		return -EMSGSIZE;
	}
	p->fill_target = FILL_TARGET;
	return dp_raw_port_open(&card->raw, p, why, size);
}

static uint32_t all_pipes(const struct card *card)
{
	return (card->n_hosts - 1) * card->n_pipes;
}

static void choose_receives(struct card *card)
{
	uint32_t n = RECEIVES;

	if (all_pipes(card))
		n = RECEIVE_CHUNKS / card->frame_chunks / all_pipes(card);
	card->n_receives = n > RECEIVES ? RECEIVES : n < RECEIVES_MIN ? RECEIVES_MIN : n;
}

static uint32_t chunks_needed(const struct card *card)
{
	uint32_t receives = all_pipes(card) * card->n_receives * card->frame_chunks;

	return card->n_local * (FILL_TARGET + HELD_MAX + DELIVERED) + receives + SPARE_CHUNKS;
}

static int register_memory(struct card *card, uint32_t n)
{
	int err;

	card->chunk = calloc(n, sizeof(*card->chunk));
	if (!card->chunk)
		return -ENOMEM;
	err = dp_raw_open(&card->raw, card->chunk, sizeof(*card->chunk), n);
	if (!err)
		err = dp_pd_create(card->engine, &card->pd);
	/* Addresses are those in the UMEM. */
	if (!err)
		err = dp_mr_create(card->pd, card->raw.area, (uint64_t)n * DP_CHUNK, 0,
				   DP_ACCESS_LOCAL_WRITE, &card->memory);
	/* At most one completion for each chunk that is somewhere in a QP. */
	if (!err)
		err = dp_cq_create(card->engine, n, NULL, &card->cq);
	return err;
}

int card_start(struct card *card, char *why, size_t size)
{
	int err;

	card->frame_chunks = (card->mtu + ETH_LEN + DP_CHUNK - 1) / DP_CHUNK;
	choose_receives(card);
	err = register_memory(card, chunks_needed(card));
	if (err) {
		snprintf(why, size, "no memory for %u chunks", chunks_needed(card));
		return err;
	}
	err = queue_open(card);
	if (err) {
		snprintf(why, size, "no memory for queues");
		return err;
	}
	for (uint32_t i = 0; i < card->n_local && !err; i++)
		err = open_guest(card, &card->port[i], why, size);
	if (!err)
		err = vxlan_open(card, why, size);
	card->started = !err;
	return err;
}

void card_close(struct card *card)
{
	sample_end(card);
	for (uint32_t i = 0; card->started && i < card->n_hosts; i++)
		tunnel_close(card, (uint16_t)i);
	vxlan_close(card);
	for (uint32_t i = 0; i < card->n_local; i++)
		dp_raw_port_close(&card->port[i]);
	if (card->cq)
		dp_cq_destroy(card->cq);
	if (card->memory)
		dp_mr_destroy(card->memory);
	if (card->pd)
		dp_pd_destroy(card->pd);
	if (card->device)
		dp_device_close(card->device);
	dp_raw_close(&card->raw);
	free(card->chunk);
	free(card->line);
	free(card->traffic);
	if (card->cc_library)
		dlclose(card->cc_library);
}
