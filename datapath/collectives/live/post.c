// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What is posted to QPs: receives, transfers and messages.
 *
 * A message is an immediate.  A QP without immediates has a WRITE and behind it a SEND with the
 * immediate and the length: the receiver sees the SEND when all of the WRITE is in its place.
 */
#include <arpa/inet.h>
#include <endian.h>

#include "collectives/live/coll.h"

static uint64_t wr_id(const struct dpcoll *comm, const struct coll_conn *conn,
		      enum coll_request kind)
{
	return (uint64_t)kind << 56 | (uint64_t)(conn - comm->conn);
}

int coll_post_receive(struct dpcoll *comm, struct coll_conn *conn, uint32_t note)
{
	const struct coll_device *device = &comm->device[conn->device];
	struct ibv_sge sge = { .addr = (uintptr_t)&conn->memory->note[note],
			       .length = sizeof(conn->memory->note[note]),
			       .lkey = device->mr->lkey };
	struct ibv_recv_wr *bad,
		wr = { .wr_id = wr_id(comm, conn, COLL_RECEIVED) | (uint64_t)note << 32,
		       .sg_list = &sge,
		       .num_sge = device->no_immediate };
	int err = ibv_post_recv(conn->qp, &wr, &bad);

	return err ? coll_fail(comm, err, "posting a receive for rank %u: %s", conn->peer,
			       strerror(err)) :
		     0;
}

int coll_post_receives(struct dpcoll *comm, struct coll_conn *conn)
{
	int err = 0;

	for (uint32_t k = 0; k < COLL_RECEIVES && !err; k++)
		err = coll_post_receive(comm, conn, k);
	return err;
}

uint64_t coll_said(const struct coll_conn *conn, const struct ibv_wc *wc)
{
	if (conn->own.no_immediate)
		return be64toh(conn->memory->note[wc->wr_id >> 32 & 0xffff]);
	return coll_with_length(ntohl(wc->imm_data), wc->byte_len);
}

static int post(struct dpcoll *comm, struct coll_conn *conn, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(conn->qp, wr, &bad);

	if (err)
		return coll_fail(comm, err, "rank %u: posting to rank %u on QP 0x%x: %s",
				 comm->cfg.rank, conn->peer, conn->qp->qp_num, strerror(err));
	conn->outstanding++;
	return 0;
}

/* A WRITE, which may be of nothing, and a message with it. */
static int post_with(struct dpcoll *comm, struct coll_conn *conn, struct ibv_send_wr *write,
		     uint32_t immediate)
{
	uint64_t *note = &conn->memory->own_note[conn->notes_sent % COLL_SENDS];
	struct ibv_sge sge = { .addr = (uintptr_t)note,
			       .length = sizeof(*note),
			       .lkey = comm->device[conn->device].mr->lkey };
	struct ibv_send_wr send = { .wr_id = write->wr_id,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED,
				    .sg_list = &sge,
				    .num_sge = 1 };

	if (!conn->own.no_immediate) {
		write->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		write->imm_data = htonl(immediate);
		write->send_flags = IBV_SEND_SIGNALED;
		return post(comm, conn, write);
	}
	conn->notes_sent++;
	*note = htobe64(coll_with_length(immediate, write->num_sge ? write->sg_list->length : 0));
	write->wr_id = wr_id(comm, conn, COLL_BEFORE);
	write->opcode = IBV_WR_RDMA_WRITE;
	write->next = &send;
	return post(comm, conn, write->num_sge ? write : &send);
}

int coll_post_message(struct dpcoll *comm, struct coll_conn *conn, enum coll_message kind,
		      uint64_t number)
{
	struct ibv_sge sge = { .lkey = comm->device[conn->device].mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id(comm, conn, COLL_TOLD),
		.sg_list = &sge,
		.wr.rdma = { .remote_addr = conn->theirs.slots, .rkey = conn->theirs.rkey },
	};

	if (conn->outstanding >= COLL_SENDS)
		return coll_fail(comm, ENOSPC, "rank %u: rank %u takes nothing", comm->cfg.rank,
				 conn->peer);
	if (kind == COLL_FAREWELL) {
		wr.num_sge = 1;
		sge.addr = (uintptr_t)comm->farewell;
		sge.length = COLL_ERROR_BYTES;
		wr.wr.rdma.remote_addr = conn->theirs.mailbox;
	} else if (kind == COLL_ALIVE) {
		wr.num_sge = 1;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = IBV_SEND_SIGNALED;
		sge.addr = (uintptr_t)comm->alive;
		sge.length = sizeof(*comm->alive);
		wr.wr.rdma.remote_addr = conn->theirs.alive;
		return post(comm, conn, &wr);
	}
	return post_with(comm, conn, &wr, coll_imm(kind, number));
}

int coll_post_step(struct dpcoll *comm, struct coll_conn *conn, const struct coll_step *step)
{
	const struct dpcoll_work *work = comm->work;
	uint64_t slot = conn->posted++ % COLL_SLOTS;
	struct ibv_sge sge = {
		.addr = (uintptr_t)work->buffer[step->row.buffer] + step->row.offset,
		.length = (uint32_t)step->row.bytes,
		.lkey = work->mr[step->row.buffer][conn->device]->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(comm, conn, COLL_SENT),
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = conn->theirs.slots + slot * comm->slot_bytes,
			     .rkey = conn->theirs.rkey },
	};

	return post_with(comm, conn, &wr,
			 coll_imm(COLL_DATA, coll_data_number(comm, step->row.step)));
}
