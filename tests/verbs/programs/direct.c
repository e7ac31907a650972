/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dpdv.h as a C program uses it: two algorithms, and what is refused.
 *
 *   direct ALGO OTHER OLD FOREIGN TEXT
 *
 * Paths of: two compiled algorithms, one for another ABI, a shared object that
 * is none, a file that is no object.  ALGO and OTHER are named "fixed" and
 * "swift".  Ends with 0, or says which line was not so.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs/dpdv.h"

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	EXPECT(qp);
	return qp;
}

static int is_mapped(const char *path)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[4096];
	int found = 0;

	while (fgets(line, sizeof(line), f))
		found |= strstr(line, path) != NULL;
	fclose(f);
	return found;
}

static void runs(struct ibv_qp *qp, const char *name, const char *object, unsigned changes)
{
	struct dpdv_cc cc;

	EXPECT(!dpdv_query_cc(qp, &cc, sizeof(cc)));
	EXPECT(!strcmp(cc.name, name));
	EXPECT(!strcmp(cc.object, object));
	EXPECT(cc.changes == changes);
	EXPECT(!strcmp(name, "constant window") == !cc.params[0]);
}

static void errors_change_nothing(struct ibv_qp *qp, char **paths)
{
	runs(qp, "fixed", paths[0], 1);
	EXPECT(dpdv_set_cc(qp, "swift.so") == EINVAL);
	EXPECT(dpdv_set_cc(qp, "/nonexistent.so") == ENOENT);
	EXPECT(dpdv_set_cc(qp, paths[2]) == EPROTONOSUPPORT);
	EXPECT(dpdv_set_cc(qp, paths[3]) == ENOEXEC);
	EXPECT(dpdv_set_cc(qp, paths[4]) == ENOEXEC);
	runs(qp, "fixed", paths[0], 1);
}

static void objects_are_counted(struct ibv_pd *pd, struct ibv_cq *cq, char **paths)
{
	struct ibv_qp *a = make_qp(pd, cq), *b = make_qp(pd, cq);

	EXPECT(!is_mapped(paths[0]));
	EXPECT(!dpdv_set_cc(a, paths[0]));
	EXPECT(!dpdv_set_cc(b, paths[0]));
	EXPECT(!dpdv_set_cc(b, paths[0])); /* anew */
	errors_change_nothing(a, paths);
	EXPECT(!dpdv_set_cc(b, paths[1]));
	runs(b, "swift", paths[1], 3);
	EXPECT(is_mapped(paths[0]));
	EXPECT(!dpdv_set_cc(a, NULL));
	runs(a, "constant window", "", 2);
	EXPECT(!is_mapped(paths[0]));
	EXPECT(is_mapped(paths[1]));
	EXPECT(!ibv_destroy_qp(b));
	EXPECT(!is_mapped(paths[1]));
	EXPECT(!ibv_destroy_qp(a));
}

/* The loader knows files by their names: it would give the older one again. */
static void changed_files_are_noticed(struct ibv_qp *qp, char **paths)
{
	char fresh[4096];

	snprintf(fresh, sizeof(fresh), "%s.new", paths[1]);
	EXPECT(!dpdv_set_cc(qp, paths[0]));
	EXPECT(!link(paths[1], fresh) && !rename(fresh, paths[0]));
	EXPECT(dpdv_set_cc(qp, paths[0]) == EBUSY);
	runs(qp, "fixed", paths[0], 1);
	EXPECT(!dpdv_set_cc(qp, NULL));
	EXPECT(!dpdv_set_cc(qp, paths[0]));
	runs(qp, "swift", paths[0], 3);
}

static void numbers_find_qps(struct ibv_qp *qp)
{
	EXPECT(dpdv_find_qp(NULL, qp->qp_num) == qp);
	EXPECT(dpdv_find_qp("dp0", qp->qp_num) == qp);
	errno = 0;
	EXPECT(!dpdv_find_qp("dp1", qp->qp_num) && errno == ENOENT);
	errno = 0;
	EXPECT(!dpdv_find_qp(NULL, qp->qp_num ^ 1) && errno == ENOENT);
}

static void an_older_program_gets_its_part(struct ibv_qp *qp)
{
	char part[80];

	memset(part, 'x', sizeof(part));
	EXPECT(!dpdv_query_cc(qp, (struct dpdv_cc *)part, 64));
	EXPECT(!strcmp(part, "swift") && part[64] == 'x');
}

static void a_child_leaves_it_alone(struct ibv_qp *qp)
{
	struct dpdv_cc cc;
	int status;

	if (!fork())
		_exit(dpdv_set_cc(qp, NULL) == EIO && dpdv_query_cc(qp, &cc, sizeof(cc)) == EIO &&
				      !dpdv_find_qp(NULL, qp->qp_num) ?
			      0 :
			      1);
	wait(&status);
	EXPECT(status == 0);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_device none = { 0 };

	EXPECT(argc == 6 && list && list[0]);
	EXPECT(dpdv_is_supported(list[0]) && !dpdv_is_supported(&none));
	context = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	objects_are_counted(pd, cq, argv + 1);
	qp = make_qp(pd, cq);
	changed_files_are_noticed(qp, argv + 1);
	numbers_find_qps(qp);
	an_older_program_gets_its_part(qp);
	a_child_leaves_it_alone(qp);
	EXPECT(!ibv_destroy_qp(qp));
	EXPECT(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
