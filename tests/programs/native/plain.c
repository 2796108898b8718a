/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls snapshot() from functions of C: plainly, on a thread, in a signal handler, and with a stack
 * frame that only the unwind tables describe. */
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "snapshot.h"

__attribute__((noinline)) static int beta(int n)
{
	return snapshot(n) + 1; /* the line of beta */
}

__attribute__((noinline)) static int alpha(int n)
{
	volatile char big[2000];

	memset((char *)big, n, sizeof(big));
	return beta(n + 1) + big[n]; /* the line of alpha */
}

__attribute__((noinline)) static int moves_stack(int n)
{
	char *room = alloca((size_t)n * 16);

	memset(room, n, (size_t)n * 16);
	return alpha(n) + room[n]; /* the line of moves_stack */
}

/* Go's function that leaves the goroutine's stack, by its name. */
__attribute__((noinline)) static int system_stack(int n) __asm__("runtime.systemstack.abi0");

static int system_stack(int n)
{
	return beta(n) + 1; /* the line of system_stack */
}

static void *on_thread(void *arg)
{
	return (void *)(long)(alpha(1) + (arg != NULL));
}

static void on_signal(int number)
{
	alpha(number);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t thread;

	if (!strcmp(how, "thread")) {
		pthread_create(&thread, NULL, on_thread, NULL);
		pthread_join(thread, NULL);
	} else if (!strcmp(how, "signal")) {
		signal(SIGUSR1, on_signal);
		raise(SIGUSR1);
	} else if (!strcmp(how, "go")) {
		return system_stack(argc) < 0 || pause();
	} else if (!strcmp(how, "alloca")) {
		return moves_stack(argc) < 0 || pause();
	} else {
		alpha(argc);
	}
	pause();
	return 0;
}
