/* SPDX-License-Identifier: MIT */
/*
 * Loaded before a traced program's libraries: who asked for large memory. A line for each malloc, mmap and their like of
 * LEAST bytes or more goes to the file PT_SITES: "PID ADDRESS BYTES", then "\tFILE|BASE|ADDRESS|SYMBOL" for each return
 * address, the caller first. Children that the program starts are without us. Memory is the allocator's that the program has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEAST (1UL << 20)
#define DEPTH 24
#define EARLY 4096

static int file = -1;
static __thread int inside;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("PT_SITES"), *rest = getenv("PT_PRELOAD");
	void *frames[2];

	inside = 1;
	backtrace(frames, 2); /* loads what it needs, once */
	file = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
	if (rest && *rest)
		setenv("LD_PRELOAD", rest, 1);
	else
		unsetenv("LD_PRELOAD");
	unsetenv("PT_SITES");
	unsetenv("PT_PRELOAD");
	inside = 0;
}

static void note(const void *memory, size_t bytes)
{
	void *frames[DEPTH];
	char line[8192];
	int kept = errno, used, count;

	if (file < 0 || inside || bytes < LEAST || !memory || memory == MAP_FAILED)
		return;
	inside = 1;
	count = backtrace(frames, DEPTH);
	used = snprintf(line, sizeof(line), "%d %lx %lx", getpid(), (uintptr_t)memory, bytes);
	for (int i = 1; i < count && used < (int)sizeof(line) - 1024; i++) {
		Dl_info where;
		uintptr_t at = (uintptr_t)frames[i] - 1;

		if (dladdr((void *)at, &where) && where.dli_fname && strlen(where.dli_fname) < 512)
			used += snprintf(line + used, sizeof(line) - used, "\t%s|%lx|%lx|%.300s", where.dli_fname,
					 (uintptr_t)where.dli_fbase, at, where.dli_sname ? where.dli_sname : "");
	}
	line[used++] = '\n';
	if (write(file, line, used) != used)
		file = -1;
	inside = 0;
	errno = kept;
}

/* Of the library that would have been asked without us. Until it is found, what dlsym itself asks for comes from here. */
#define NEXT(name) (next_##name ? next_##name : (next_##name = (typeof(next_##name))next(#name)))

static __thread int looking;
static char early[EARLY];
static size_t early_used;

static void *next(const char *name)
{
	void *found;

	looking++;
	found = dlsym(RTLD_NEXT, name);
	looking--;
	return found;
}

static void *from_early(size_t bytes)
{
	size_t at = __atomic_fetch_add(&early_used, (bytes + 15) & -16UL, __ATOMIC_RELAXED);

	return at + bytes <= EARLY ? early + at : NULL;
}

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t), *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void *(*next_mmap)(void *, size_t, int, int, int, off_t), *(*next_mmap64)(void *, size_t, int, int, int, off_t);

#define ALLOCATOR(name, parameters, arguments, bytes)                    \
	__attribute__((visibility("default"))) void *name parameters     \
	{                                                                \
		void *memory = looking ? from_early(bytes) : NULL;       \
                                                                         \
		if (memory)                                              \
			return memory;                                   \
		memory = NEXT(name) ? next_##name arguments : NULL;      \
		note(memory, bytes);                                     \
		return memory;                                           \
	}

ALLOCATOR(malloc, (size_t bytes), (bytes), bytes)
ALLOCATOR(calloc, (size_t count, size_t each), (count, each), count *each)
ALLOCATOR(realloc, (void *old, size_t bytes), (old, bytes), bytes)
ALLOCATOR(memalign, (size_t alignment, size_t bytes), (alignment, bytes), bytes)
ALLOCATOR(aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes), bytes)

__attribute__((visibility("default"))) int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
	int result = NEXT(posix_memalign) ? next_posix_memalign(memory, alignment, bytes) : ENOMEM;

	if (!result)
		note(*memory, bytes);
	return result;
}

#define MAPPER(name)                                                                                                 \
	__attribute__((visibility("default"))) void *name(void *at, size_t bytes, int rights, int flags, int from,   \
							  off_t offset)                                              \
	{                                                                                                            \
		void *memory = NEXT(name) ? next_##name(at, bytes, rights, flags, from, offset) : MAP_FAILED;        \
                                                                                                                     \
		note(memory, bytes);                                                                                 \
		return memory;                                                                                       \
	}

MAPPER(mmap)
MAPPER(mmap64)
