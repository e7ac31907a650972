// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Chooses one of two transmit queues by the UDP source port, as a card with RSS chooses the receive
 * queue.  A veth device hands what leaves through a queue to the same queue of its peer. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define SOURCE_PORT (14 + 20) /* behind Ethernet and IPv4 */

SEC("tc")
int spread(struct __sk_buff *skb)
{
	__u8 port[2];

	if (bpf_skb_load_bytes(skb, SOURCE_PORT, port, 2))
		return TC_ACT_OK;
	/* one more than the queue: 0 is for none */
	skb->queue_mapping = 1 + ((port[0] ^ port[1] ^ port[1] >> 3) & 1);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
