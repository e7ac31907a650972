// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Data.  Offers are numbered by `sequence`, and kept at index sequence % NET_OFFERS.  The immediate
 * of a WRITE is sequence << 8 | the buffer's place in its offer.
 *
 * The receiver has at most NET_OFFERS offers under way, and posts a receive for each buffer before
 * the offer leaves.  The sender has NET_OFFERS receives for offers, and posts each again before it
 * uses the offer.  So no receive is ever missing at either end.
 */
#include <arpa/inet.h>

#include "collectives/nccl/net.h"

enum {
	BATCH = 16,
	OFFER_HEAD = offsetof(struct net_offer, buffer),
};

static size_t offer_bytes(uint32_t n)
{
	return OFFER_HEAD + n * sizeof(struct net_buffer);
}

static struct net_request *take_request(struct net_comm *comm)
{
	for (uint32_t i = 0; i < comm->requests; i++)
		if (!comm->request[i].used) {
			comm->request[i] = (struct net_request){ .comm = comm, .used = true };
			return &comm->request[i];
		}
	return NULL;
}

/* ---- completions -------------------------------------------------------------------------- */

static int post_offer_receive(struct net_comm *comm, uint32_t index)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&comm->offer[index],
			       .length = sizeof(comm->offer[index]),
			       .lkey = comm->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 };

	return ibv_post_recv(comm->qp, &wr, &bad);
}

enum nccl_result net_post_offers(struct net_comm *comm)
{
	for (uint32_t index = 0; index < NET_OFFERS; index++) {
		int err = post_offer_receive(comm, index);

		if (err)
			return net_fail(NCCL_SYSTEM_ERROR, "posting a receive: %s", strerror(err));
	}
	return NCCL_SUCCESS;
}

static void offer_came(struct net_comm *comm, const struct ibv_wc *wc)
{
	const struct net_offer *in = &comm->offer[wc->wr_id];
	struct net_offer *out = &comm->ready[comm->offered % NET_OFFERS];
	int err;

	if (wc->byte_len < OFFER_HEAD || in->n < 1 || in->n > NET_GROUP ||
	    wc->byte_len != offer_bytes(in->n) || in->sequence != (uint32_t)comm->offered ||
	    comm->offered - comm->head >= NET_OFFERS) {
		net_comm_fail(comm, NCCL_REMOTE_ERROR, "the receiver's offer makes no sense");
		return;
	}
	memcpy(out, in, wc->byte_len);
	comm->offered++;
	err = post_offer_receive(comm, (uint32_t)wc->wr_id);
	if (err)
		net_comm_fail(comm, NCCL_SYSTEM_ERROR, "posting a receive: %s", strerror(err));
}

static void data_came(struct net_comm *comm, const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data), at = imm & 0xff;
	uint32_t index = (imm >> 8) % NET_OFFERS;
	struct net_request *request = comm->under_way[index];

	if (!request || at >= request->n || request->came[at] || wc->byte_len > request->room[at] ||
	    (uint32_t)(request->number & 0xffffff) != imm >> 8) {
		net_comm_fail(comm, NCCL_REMOTE_ERROR, "the sender's message 0x%x makes no sense",
			      imm);
		return;
	}
	request->bytes[at] = wc->byte_len;
	request->came[at] = true;
	comm->completed++;
	if (!--request->left)
		comm->under_way[index] = NULL;
}

static void broken(struct net_comm *comm, const struct ibv_wc *wc)
{
	/* The peer may have said over TCP why. */
	comm->looked_ns = 0;
	net_comm_look(comm);
	net_comm_fail(comm, NCCL_REMOTE_ERROR, "%s", ibv_wc_status_str(wc->status));
}

static void complete(struct net_comm *comm, const struct ibv_wc *wc)
{
	if (wc->opcode & IBV_WC_RECV) {
		if (comm->sends)
			offer_came(comm, wc);
		else
			data_came(comm, wc);
	} else if (comm->sends) {
		comm->request[wc->wr_id].left = 0;
		comm->completed++;
	} else {
		comm->busy[wc->wr_id] = false;
	}
}

void net_progress(struct net_comm *comm)
{
	struct ibv_wc wc[BATCH];
	int n = BATCH;

	while (n == BATCH && !comm->failed) {
		n = ibv_poll_cq(comm->cq, BATCH, wc);
		if (n < 0)
			net_comm_fail(comm, NCCL_SYSTEM_ERROR, "polling the CQ failed");
		for (int i = 0; i < n; i++) {
			if (wc[i].status == IBV_WC_SUCCESS)
				complete(comm, &wc[i]);
			else if (!comm->failed)
				broken(comm, &wc[i]);
		}
	}
}

/* ---- calls -------------------------------------------------------------------------------- */

/* The place of a free buffer with the tag in the oldest offer; -1: there is none. */
static int find_buffer(const struct net_comm *comm, int tag)
{
	const struct net_offer *offer = &comm->ready[comm->head % NET_OFFERS];

	if (comm->head == comm->offered)
		return -1;
	for (uint32_t i = 0; i < offer->n; i++)
		if (offer->buffer[i].tag == (uint32_t)tag && !(comm->taken >> i & 1))
			return (int)i;
	return -1;
}

static enum nccl_result write_data(struct net_comm *comm, struct net_request *request, void *data,
				   const struct ibv_mr *mr, int at)
{
	const struct net_offer *offer = &comm->ready[comm->head % NET_OFFERS];
	const struct net_buffer *buffer = &offer->buffer[at];
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = request->bytes[0] };
	struct ibv_send_wr *bad,
		wr = { .wr_id = (uint64_t)(request - comm->request),
		       .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		       .imm_data = htonl(offer->sequence << 8 | (uint32_t)at),
		       .sg_list = &sge,
		       .num_sge = sge.length ? 1 : 0,
		       .wr.rdma = { .remote_addr = buffer->address, .rkey = buffer->rkey } };
	int err;

	if (sge.length)
		sge.lkey = mr->lkey;
	err = ibv_post_send(comm->qp, &wr, &bad);
	if (err)
		return net_comm_fail(comm, NCCL_SYSTEM_ERROR, "posting a send: %s", strerror(err));
	comm->posted++;
	comm->taken |= 1u << at;
	if (comm->taken == (1u << offer->n) - 1) {
		comm->taken = 0;
		comm->head++;
	}
	return NCCL_SUCCESS;
}

enum nccl_result net_isend(struct net_comm *comm, void *data, size_t bytes, int tag, void *memory,
			   void **out)
{
	struct net_request *request;
	enum nccl_result result;
	int at;

	*out = NULL;
	net_progress(comm);
	at = find_buffer(comm, tag);
	if (at < 0)
		net_comm_look(comm);
	if (comm->failed || at < 0)
		return comm->failed;
	if (bytes > comm->ready[comm->head % NET_OFFERS].buffer[at].bytes)
		return net_fail(
			NCCL_INVALID_USAGE,
			"QP 0x%x: a send of %zu bytes with tag %d, and a receive of %llu",
			comm->own.qpn, bytes, tag,
			(unsigned long long)comm->ready[comm->head % NET_OFFERS].buffer[at].bytes);
	request = take_request(comm);
	if (!request)
		return NCCL_SUCCESS;
	request->n = request->left = 1;
	request->bytes[0] = (uint32_t)bytes;
	request->number = comm->posted;
	result = write_data(comm, request, data, memory, at);
	if (result)
		request->used = false;
	else
		*out = request;
	return result;
}

static enum nccl_result send_offer(struct net_comm *comm, uint32_t index)
{
	struct ibv_recv_wr *bad_receive, receive = { 0 };
	struct ibv_sge sge = { .addr = (uintptr_t)&comm->offer[index],
			       .length = (uint32_t)offer_bytes(comm->offer[index].n),
			       .lkey = comm->mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .wr_id = index, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	int err = 0;

	for (uint32_t i = 0; i < comm->offer[index].n && !err; i++)
		err = ibv_post_recv(comm->qp, &receive, &bad_receive);
	if (!err)
		err = ibv_post_send(comm->qp, &wr, &bad);
	return err ? net_comm_fail(comm, NCCL_SYSTEM_ERROR, "posting receives: %s", strerror(err)) :
		     NCCL_SUCCESS;
}

enum nccl_result net_irecv(struct net_comm *comm, int n, void *const *data, const size_t *bytes,
			   const int *tags, void *const *memory, void **out)
{
	uint32_t index = (uint32_t)(comm->offered % NET_OFFERS);
	struct net_offer *offer = &comm->offer[index];
	struct net_request *request;
	enum nccl_result result;

	*out = NULL;
	if (n < 1 || n > NET_GROUP)
		return net_fail(NCCL_INTERNAL_ERROR, "a group of %d receives, of at most %d", n,
				NET_GROUP);
	net_progress(comm);
	net_comm_look(comm);
	if (comm->failed || comm->busy[index] || comm->under_way[index])
		return comm->failed;
	request = take_request(comm);
	if (!request)
		return NCCL_SUCCESS;
	*offer = (struct net_offer){ .sequence = (uint32_t)comm->offered, .n = (uint32_t)n };
	for (int i = 0; i < n; i++) {
		const struct ibv_mr *mr = memory[i];
		uint32_t room = bytes[i] > NET_MAX_BYTES ? NET_MAX_BYTES : (uint32_t)bytes[i];

		request->room[i] = room;
		offer->buffer[i] = (struct net_buffer){ .address = (uintptr_t)data[i],
							.bytes = room,
							.rkey = mr ? mr->rkey : 0,
							.tag = (uint32_t)tags[i] };
	}
	request->n = request->left = (uint32_t)n;
	request->number = comm->offered;
	comm->under_way[index] = request;
	comm->busy[index] = true;
	comm->offered++;
	result = send_offer(comm, index);
	if (!result)
		*out = request;
	return result;
}

enum nccl_result net_test(struct net_request *request, int *done, int *bytes)
{
	struct net_comm *comm = request->comm;

	*done = 0;
	if (!comm || !request->used)
		return net_fail(NCCL_INTERNAL_ERROR, "a request is tested that is none");
	if (request->left) {
		net_progress(comm);
		if (request->left)
			net_comm_look(comm);
	}
	if (request->left)
		return comm->failed;
	*done = 1;
	for (uint32_t i = 0; bytes && i < request->n; i++)
		bytes[i] = (int)request->bytes[i];
	request->used = false;
	return NCCL_SUCCESS;
}
