/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lanes/keeper/keeper.h"
#include "posix/number.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { INIT = 1, PATH_ROOM = 64 };

/* The number that is a folder's name; 0: the name is no number. */
static pid_t number(const struct dirent *entry)
{
	uint32_t n;

	return dp_read_u32(entry->d_name, 1, INT32_MAX, &n) ? 0 : (pid_t)n;
}

static bool read_schedstat(pid_t tgid, pid_t tid, struct cpu_time *time)
{
	char path[PATH_ROOM];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", tgid, tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fscanf(f, "%" SCNu64 " %" SCNu64, &time->ran_ns, &time->waited_ns);
	fclose(f);
	return n == 2;
}

static void visit_process(pid_t tgid, void (*visit)(pid_t, const struct cpu_time *, void *),
			  void *arg)
{
	char path[PATH_ROOM];
	struct dirent *entry;
	struct cpu_time time;
	pid_t tid;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", tgid);
	tasks = opendir(path);
	if (!tasks)
		return;
	while ((entry = readdir(tasks))) {
		tid = number(entry);
		if (tid && read_schedstat(tgid, tid, &time))
			visit(tid, &time, arg);
	}
	closedir(tasks);
}

void threads_visit(void (*visit)(pid_t, const struct cpu_time *, void *), void *arg)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t tgid;

	if (!proc)
		return;
	while ((entry = readdir(proc))) {
		tgid = number(entry);
		if (tgid && tgid != INIT && tgid != getpid())
			visit_process(tgid, visit, arg);
	}
	closedir(proc);
}

void thread_name(pid_t tid, char name[COMM_MAX])
{
	char path[PATH_ROOM];
	FILE *f;

	strcpy(name, "?");
	snprintf(path, sizeof(path), "/proc/%d/comm", tid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(name, COMM_MAX, f))
		name[strcspn(name, "\n")] = '\0';
	fclose(f);
}
