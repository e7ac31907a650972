// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Hash tables with linear probing; nothing is ever taken out. */
#include <errno.h>
#include <string.h>

#include "io/addr.h"
#include "vnic/card.h"
#include "wire/random.h"

enum { MACS = 2 * GUESTS_MAX, ADDRS = 8 * GUESTS_MAX };

static uint32_t hash_mac(uint32_t vni, const uint8_t *mac)
{
	uint64_t key = 0;

	memcpy(&key, mac, MAC_LEN);
	return (uint32_t)dp_mix64(key ^ (uint64_t)vni << 40);
}

static uint32_t hash_addr(uint32_t vni, const struct dp_addr *a)
{
	uint64_t half[2];

	memcpy(half, a->b, sizeof(half));
	return (uint32_t)dp_mix64(dp_mix64(half[0] ^ vni) ^ half[1]);
}

uint16_t table_mac(const struct card *card, uint32_t vni, const uint8_t mac[MAC_LEN])
{
	for (uint32_t at = hash_mac(vni, mac) % MACS; card->by_mac[at]; at = (at + 1) % MACS) {
		const struct guest *g = &card->guest[card->by_mac[at] - 1];

		if (g->vni == vni && !memcmp(g->mac, mac, MAC_LEN))
			return card->by_mac[at] - 1;
	}
	return NOBODY;
}

bool guest_has(const struct guest *g, const struct dp_addr *a)
{
	if (dp_addr_is_unspecified(a))
		return false;
	return dp_addr_equal(a, &g->ipv4) || dp_addr_equal(a, &g->ipv6) ||
	       dp_addr_equal(a, &g->link_local);
}

uint16_t table_addr(const struct card *card, uint32_t vni, const struct dp_addr *a)
{
	for (uint32_t at = hash_addr(vni, a) % ADDRS; card->by_addr[at]; at = (at + 1) % ADDRS) {
		const struct guest *g = &card->guest[card->by_addr[at] - 1];

		if (g->vni == vni && guest_has(g, a))
			return card->by_addr[at] - 1;
	}
	return NOBODY;
}

uint16_t table_host(const struct card *card, const struct dp_addr *a)
{
	for (uint32_t i = 0; i < card->n_hosts; i++)
		if (dp_addr_equal(&card->host[i].addr, a))
			return (uint16_t)i;
	return NOBODY;
}

static void enter(uint16_t *table, uint32_t size, uint32_t hash, uint16_t value)
{
	uint32_t at = hash % size;

	while (table[at])
		at = (at + 1) % size;
	table[at] = value;
}

int table_add(struct card *card, const struct guest *g)
{
	const struct dp_addr *addrs[] = { &g->ipv4, &g->ipv6, &g->link_local };
	uint16_t number = (uint16_t)(card->n_guests + 1);

	if (card->n_guests == GUESTS_MAX)
		return -ENOSPC;
	if (table_mac(card, g->vni, g->mac) != NOBODY)
		return -EEXIST;
	for (unsigned i = 0; i < 3; i++)
		if (table_addr(card, g->vni, addrs[i]) != NOBODY)
			return -EEXIST;
	card->guest[card->n_guests++] = *g;
	enter(card->by_mac, MACS, hash_mac(g->vni, g->mac), number);
	for (unsigned i = 0; i < 3; i++)
		if (!dp_addr_is_unspecified(addrs[i]))
			enter(card->by_addr, ADDRS, hash_addr(g->vni, addrs[i]), number);
	return 0;
}
