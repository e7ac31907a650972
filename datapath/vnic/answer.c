// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The card answers requests for the link addresses of a tenant's guests.  So a request goes to no
 * other host, and a guest learns of no guest of another tenant.
 */
#include "vnic/header.h"
#include "wire/headers.h"

enum {
	ARP_LEN = 28,
	ARP_REQUEST = 1,
	ARP_REPLY = 2,
	ARP_SENDER_MAC = 8,
	ARP_SENDER_IP = 14,
	ARP_TARGET_MAC = 18,
	ARP_TARGET_IP = 24,

	ICMP6_ROUTER_SOLICITATION = 133, /* to 137: RFC 4861, 4 */
	ICMP6_SOLICITATION = 135,
	ICMP6_ADVERTISEMENT = 136,
	ICMP6_REDIRECT = 137,
	ND_LEN = 24, /* without options */
	ND_TARGET = 8,
	ND_OPTION = 24,
	ND_OPTION_LEN = 8,
	ND_SOLICITED_OVERRIDE = 0x60,
	ND_OPTION_TARGET_LINK = 2,
	ND_HOP_LIMIT = 255,
};

static bool same_address(const struct dp_addr *a, const struct dp_addr *b)
{
	return !memcmp(a->b, b->b, sizeof(a->b));
}

/* ---- ARP ------------------------------------------------------------------------- */

static bool read_arp(const uint8_t *arp, uint32_t len, struct question *q)
{
	static const uint8_t ethernet_ipv4[] = { 0, 1, 8, 0, MAC_LEN, 4, 0, ARP_REQUEST };

	if (len < ARP_LEN || memcmp(arp, ethernet_ipv4, sizeof(ethernet_ipv4)))
		return false;
	memcpy(q->asker_mac, arp + ARP_SENDER_MAC, MAC_LEN);
	dp_addr_from_v4(&q->asker, arp + ARP_SENDER_IP);
	dp_addr_from_v4(&q->target, arp + ARP_TARGET_IP);
	return !same_address(&q->asker, &q->target);
}

static uint32_t answer_arp(uint8_t *arp, const struct question *q, const uint8_t *mac)
{
	arp[7] = ARP_REPLY;
	memcpy(arp + ARP_SENDER_MAC, mac, MAC_LEN);
	memcpy(arp + ARP_SENDER_IP, q->target.b + 12, 4);
	memcpy(arp + ARP_TARGET_MAC, q->asker_mac, MAC_LEN);
	memcpy(arp + ARP_TARGET_IP, q->asker.b + 12, 4);
	return ETH_LEN + ARP_LEN;
}

/* ---- neighbour solicitations ------------------------------------------------------- */

static bool read_solicitation(const uint8_t *b, uint32_t len, const struct header *h,
			      struct question *q)
{
	static const struct dp_addr unspecified;
	const uint8_t *icmp = b + ETH_LEN + IPV6_LEN;

	if (h->version != 6 || h->protocol != PROTO_ICMPV6 || h->transport != ETH_LEN + IPV6_LEN ||
	    h->transport + ND_LEN > len)
		return false;
	if (icmp[0] != ICMP6_SOLICITATION || b[ETH_LEN + 7] != ND_HOP_LIMIT)
		return false;
	memcpy(q->asker_mac, h->src_mac, MAC_LEN);
	q->asker = h->src;
	memcpy(q->target.b, icmp + ND_TARGET, sizeof(q->target.b));
	/* From the unspecified address: the guest asks whether another has its address. */
	return !same_address(&q->asker, &unspecified);
}

bool tells_of_neighbours(const struct header *h)
{
	return h->icmp6 >= ICMP6_ROUTER_SOLICITATION && h->icmp6 <= ICMP6_REDIRECT;
}

static uint32_t sum_words(const uint8_t *b, uint32_t len)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < len; i += 2)
		sum += dp_get16(b + i);
	return sum;
}

/* RFC 4443, 2.3: over the pseudo-header. */
static uint16_t icmp6_checksum(const uint8_t *ip, const uint8_t *icmp, uint32_t len)
{
	uint32_t sum = PROTO_ICMPV6 + len + sum_words(ip + 8, 32) + sum_words(icmp, len);

	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

static uint32_t answer_solicitation(uint8_t *b, const struct question *q, const uint8_t *mac)
{
	uint8_t *ip = b + ETH_LEN, *icmp = ip + IPV6_LEN;
	const uint32_t len = ND_LEN + ND_OPTION_LEN;

	dp_put32(ip, 6u << 28);
	dp_put16(ip + 4, (uint16_t)len);
	ip[6] = PROTO_ICMPV6;
	ip[7] = ND_HOP_LIMIT;
	memcpy(ip + 8, q->target.b, sizeof(q->target.b));
	memcpy(ip + 24, q->asker.b, sizeof(q->asker.b));
	memset(icmp, 0, ND_TARGET);
	icmp[0] = ICMP6_ADVERTISEMENT;
	icmp[4] = ND_SOLICITED_OVERRIDE;
	memcpy(icmp + ND_TARGET, q->target.b, sizeof(q->target.b));
	icmp[ND_OPTION] = ND_OPTION_TARGET_LINK;
	icmp[ND_OPTION + 1] = ND_OPTION_LEN / 8;
	memcpy(icmp + ND_OPTION + 2, mac, MAC_LEN);
	dp_put16(icmp + 2, icmp6_checksum(ip, icmp, len));
	return ETH_LEN + IPV6_LEN + len;
}

/* ---- both -------------------------------------------------------------------------- */

bool question_read(const uint8_t *b, uint32_t len, const struct header *h, struct question *q)
{
	if (h->ethertype == ETHERTYPE_ARP)
		return read_arp(b + ETH_LEN, len - ETH_LEN, q);
	return read_solicitation(b, len, h, q);
}

uint32_t answer_write(uint8_t *b, const struct header *h, const struct question *q,
		      const uint8_t mac[MAC_LEN])
{
	bool arp = h->ethertype == ETHERTYPE_ARP;

	memcpy(b, q->asker_mac, MAC_LEN);
	memcpy(b + MAC_LEN, mac, MAC_LEN);
	return arp ? answer_arp(b + ETH_LEN, q, mac) : answer_solicitation(b, q, mac);
}
