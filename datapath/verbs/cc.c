/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Congestion-control algorithms in use.  Each is loaded once, and counts the QPs and devices that
 * use it.  An algorithm that nobody uses is unloaded.
 *
 * The lock covers only the lists, and is taken inside a device's lock.  No lock is held while the
 * dynamic loader runs: it calls constructors, which may call verbs.
 */
#include "verbs/front.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/trust.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct front_cc *loaded;	 /* algorithms that somebody uses */
static struct front_cc *retired; /* algorithms that nobody uses: front_cc_sweep() unloads them */

/* In the child, nobody releases what another thread held.  An algorithm that was on its way from
 * list to list stays loaded. */
static void forget_lock(void)
{
	pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget_lock);
}

static int complain(int err, char *error, size_t error_len, const char *path, const char *what)
{
	snprintf(error, error_len, "cc=%s %s", path, what);
	return err;
}

static bool is_same_file(const struct front_cc *a, const struct front_cc *b)
{
	return a->file_dev == b->file_dev && a->file_ino == b->file_ino &&
	       a->file_mtime.tv_sec == b->file_mtime.tv_sec &&
	       a->file_mtime.tv_nsec == b->file_mtime.tv_nsec;
}

/*
 * Adds `fresh` to the list.  If its library is in the list already, counts one more user of that
 * entry, and returns the entry.
 */
static struct front_cc *enter(struct front_cc *fresh)
{
	struct front_cc *c;

	pthread_mutex_lock(&lock);
	for (c = loaded; c && c->library != fresh->library; c = c->next)
		;
	if (c) {
		c->users++;
	} else {
		fresh->next = loaded;
		loaded = c = fresh;
	}
	pthread_mutex_unlock(&lock);
	return c;
}

/*
 * `real` is `path` without symbolic links.  So the file that is checked is the file that is loaded.
 */
static int load(const char *path, const char *real, struct front_cc **out, char *error,
		size_t error_len)
{
	char why[DP_PATH_MAX + 128];
	struct front_cc *c;
	struct stat st;
	int err;

	err = dp_trust_check(real, why, sizeof(why));
	if (err) {
		snprintf(error, error_len, "cc=%s is not loaded: %s", path, why);
		return err;
	}
	if (stat(real, &st)) {
		err = -errno;
		return complain(err, error, error_len, path, strerror(-err));
	}
	c = calloc(1, sizeof(*c) + strlen(path) + 1);
	if (!c)
		return complain(-ENOMEM, error, error_len, path, "finds no memory");
	strcpy(c->object, path);
	c->users = 1;
	c->file_dev = st.st_dev;
	c->file_ino = st.st_ino;
	c->file_mtime = st.st_mtim;
	c->library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
	if (!c->library) {
		snprintf(error, error_len, "%s", dlerror()); /* the message names the file */
		free(c);
		return -ENOEXEC;
	}
	*out = c;
	return 0;
}

static int open_object(const char *path, struct front_cc **out, char *error, size_t error_len)
{
	char *real;
	int err;

	if (path[0] != '/')
		return complain(-EINVAL, error, error_len, path, "is not an absolute path");
	real = realpath(path, NULL);
	if (!real) {
		err = -errno;
		return complain(err, error, error_len, path, strerror(-err));
	}
	err = load(path, real, out, error, error_len);
	free(real);
	return err;
}

static void unload(struct front_cc *c)
{
	dlclose(c->library);
	free(c);
}

int front_cc_load(const char *path, struct front_cc **out, char *error, size_t error_len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct front_cc *fresh = NULL, *c;
	bool changed;
	int err;

	pthread_once(&once, watch_forks);
	err = open_object(path, &fresh, error, error_len);
	if (err)
		return err;
	err = dp_trust_algorithm(fresh->library, path, &fresh->algo, error, error_len);
	if (err) {
		unload(fresh);
		return err;
	}
	c = enter(fresh);
	changed = !is_same_file(c, fresh);
	if (c != fresh)
		unload(fresh); /* the dynamic loader counts its users itself */
	if (!changed) {
		*out = c;
		return 0;
	}
	/* The dynamic loader finds libraries by name, and has returned the older content. */
	front_cc_put(c);
	front_cc_sweep();
	return complain(-EBUSY, error, error_len, path,
			"was changed, and its older content is in use: give it another name");
}

struct front_cc *front_cc_hold(struct front_cc *c)
{
	if (!c)
		return NULL;
	pthread_mutex_lock(&lock);
	c->users++;
	pthread_mutex_unlock(&lock);
	return c;
}

void front_cc_put(struct front_cc *c)
{
	struct front_cc **at;

	if (!c)
		return;
	pthread_mutex_lock(&lock);
	if (!--c->users) {
		for (at = &loaded; *at != c; at = &(*at)->next)
			;
		*at = c->next;
		c->next = retired;
		retired = c;
	}
	pthread_mutex_unlock(&lock);
}

void front_cc_sweep(void)
{
	struct front_cc *c, *next;

	pthread_mutex_lock(&lock);
	c = retired;
	retired = NULL;
	pthread_mutex_unlock(&lock);
	for (; c; c = next) {
		next = c->next;
		unload(c);
	}
}

const char *front_cc_name(const struct front_cc *c)
{
	return c ? c->algo->name : "constant window";
}

const char *front_cc_params(const struct front_cc *c)
{
	return c && c->algo->params ? c->algo->params : "";
}

const char *front_cc_object(const struct front_cc *c)
{
	return c ? c->object : "";
}

/* ---- QPs, under the device's lock ---------------------------------------------------- */

static int use(struct front_qp *qp, struct front_cc *cc)
{
	int err = dp_qp_set_cc(qp->qp, cc ? cc->algo : NULL, dp_device_now_ns());

	if (!err)
		qp->cc = front_cc_hold(cc);
	return err;
}

bool front_has_cc(const struct front_qp *qp)
{
	return qp->ex.qp_base.qp_type == IBV_QPT_RC;
}

int front_cc_begin(struct front_qp *qp)
{
	return front_has_cc(qp) ? use(qp, front_context_of(qp)->device->cc) : 0;
}

int front_cc_set(struct front_qp *qp, struct front_cc *cc)
{
	struct front_cc *before = qp->cc;
	int err = use(qp, cc);

	if (err)
		return err;
	front_cc_put(before);
	qp->cc_changes++;
	return 0;
}

void front_qps_add(struct front_qp *qp)
{
	struct front_device *d = front_context_of(qp)->device;

	if (!front_has_cc(qp))
		return;
	qp->number = ++d->qps_made;
	qp->at = d->end;
	*d->end = qp;
	d->end = &qp->next;
}

void front_qps_remove(struct front_qp *qp)
{
	struct front_device *d = front_context_of(qp)->device;

	if (!front_has_cc(qp))
		return;
	*qp->at = qp->next;
	if (qp->next)
		qp->next->at = qp->at;
	else
		d->end = qp->at;
}
