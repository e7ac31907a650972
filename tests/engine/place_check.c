// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * dp_place(): which bytes are stored, how often, and in which order.
 *
 * The memory is read-only, so each instruction that stores into it traps.  It is then run alone (the
 * trap flag of x86-64), and what it stored is told by comparison, and taken back: a byte that is
 * stored a second time is seen a second time.
 */
#undef NDEBUG
#include <assert.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "engine/place.h"

enum { PAGE = 4096, ROOM = 2 * PAGE, SPACE = 64, LONGEST = 1200, TRAP_FLAG = 1 << 8 };

static uint8_t *memory;
static struct {
	unsigned stores; /* instructions that stored */
	unsigned last[ROOM], count[ROOM];
} seen;

static void protect(int protection)
{
	assert(!mprotect(memory, ROOM, protection));
}

static void before_the_store(int number, siginfo_t *info, void *context)
{
	(void)number;
	assert((uint8_t *)info->si_addr >= memory && (uint8_t *)info->si_addr < memory + ROOM);
	protect(PROT_READ | PROT_WRITE);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void after_the_store(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	seen.stores++;
	for (size_t i = 0; i < ROOM; i++) {
		if (!memory[i])
			continue;
		memory[i] = 0;
		seen.count[i]++;
		seen.last[i] = seen.stores;
	}
	protect(PROT_READ);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static void watch(void (*copy)(uint8_t *, const uint8_t *, size_t), size_t offset, size_t len)
{
	static uint8_t from[LONGEST];

	memset(from, 0xa5, sizeof(from)); /* no byte of it is like the memory */
	memset(&seen, 0, sizeof(seen));
	protect(PROT_READ);
	copy(memory + offset, from, len);
	protect(PROT_READ | PROT_WRITE);
}

/* Whether the last bytes were stored once, in order, after those before them; and nothing else. */
static bool in_order(size_t offset, size_t len)
{
	size_t ordered = len > DP_PLACE_ORDERED ? offset + len - DP_PLACE_ORDERED : offset;
	unsigned latest = 0;

	for (size_t i = 0; i < ROOM; i++) {
		bool inside = i >= offset && i < offset + len;

		if (inside != !!seen.count[i] || (inside && i >= ordered && seen.count[i] != 1))
			return false;
		if (i >= ordered && inside && seen.last[i] < latest)
			return false;
		if (inside && seen.last[i] > latest)
			latest = seen.last[i];
	}
	return true;
}

static void aligned_pieces_are_whole(size_t offset, size_t len)
{
	for (size_t n = 2; n <= 8; n *= 2) {
		for (size_t at = (offset + n - 1) & ~(n - 1); at + n <= offset + len; at += n) {
			if (at + DP_PLACE_ORDERED < offset + len)
				continue; /* before the last bytes */
			for (size_t i = 1; i < n; i++)
				assert(seen.last[at + i] == seen.last[at]);
		}
	}
}

static void twice(uint8_t *to, const uint8_t *from, size_t len)
{
	for (int n = 0; n < 2; n++)
		for (size_t i = 0; i < len; i++)
			*(volatile uint8_t *)(to + i) = from[i];
}

static void backwards(uint8_t *to, const uint8_t *from, size_t len)
{
	while (len--)
		*(volatile uint8_t *)(to + len) = from[len];
}

int main(void)
{
	struct sigaction fault = { .sa_sigaction = before_the_store, .sa_flags = SA_SIGINFO };
	struct sigaction trap = { .sa_sigaction = after_the_store, .sa_flags = SA_SIGINFO };

	memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(memory != MAP_FAILED);
	assert(!sigaction(SIGSEGV, &fault, NULL) && !sigaction(SIGTRAP, &trap, NULL));

	watch(twice, 8, 8);
	assert(!in_order(8, 8));
	watch(backwards, 8, 8);
	assert(!in_order(8, 8));

	for (size_t offset = PAGE - SPACE; offset < PAGE + 8; offset += offset < PAGE - 8 ? 8 : 1) {
		for (size_t len = 0; len <= LONGEST; len += len < 2 * DP_PLACE_ORDERED ? 1 : 67) {
			watch(dp_place, offset, len);
			assert(in_order(offset, len));
			aligned_pieces_are_whole(offset, len);
		}
	}
	return 0;
}
