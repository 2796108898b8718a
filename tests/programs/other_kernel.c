/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Preloaded: a kernel whose uname() is as TEST_RELEASE and TEST_VERSION say, without bpf(), or with
 * TEST_NO_LINKS a kernel without BPF links. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LINK_CREATE 28 /* BPF_LINK_CREATE, include/uapi/linux/bpf.h */

int uname(struct utsname *un)
{
	int (*real)(struct utsname *) = (int (*)(struct utsname *))dlsym(RTLD_NEXT, "uname");
	int err = real(un);

	if (!err && getenv("TEST_RELEASE"))
		snprintf(un->release, sizeof(un->release), "%s", getenv("TEST_RELEASE"));
	if (!err && getenv("TEST_VERSION"))
		snprintf(un->version, sizeof(un->version), "%s", getenv("TEST_VERSION"));
	return err;
}

long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_bpf && (!getenv("TEST_NO_LINKS") || a[0] == LINK_CREATE)) {
		errno = getenv("TEST_NO_LINKS") ? EOPNOTSUPP : ENOSYS;
		return -1;
	}
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
