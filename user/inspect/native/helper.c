/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native/helper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inspect/native/confine.h"
#include "inspect/native/unwind.h"
#include "inspect/native/wire.h"

union request {
	struct wire_hdr h;
	struct wire_unwind unwind;
	uint8_t bytes[sizeof(struct wire_unwind) + NATIVE_STACK_MAX];
};

/* Receives a message and its descriptor (-1: none). Its length; 0: the other end is closed. */
static ssize_t receive(int fd, void *buf, size_t size, int *passed)
{
	union {
		struct cmsghdr h;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { buf, size };
	struct msghdr m = { .msg_iov = &part,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	ssize_t n;

	*passed = -1;
	do
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	for (c = n < 0 ? NULL : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(passed, CMSG_DATA(c), sizeof(*passed));
	return n < 0 ? 0 : n;
}

int helper__file(int fd, unsigned kind, uint32_t candidate, uint32_t module,
		 const uint8_t *build_id, size_t build_id_len, const char *name)
{
	struct wire_need need = { .h = { kind, candidate }, .module = module };
	struct wire_hdr answer;
	int passed;

	if (build_id_len <= sizeof(need.build_id) && build_id_len) {
		need.build_id_len = (uint32_t)build_id_len;
		memcpy(need.build_id, build_id, build_id_len);
	}
	if (name && strlen(name) < sizeof(need.name))
		strcpy(need.name, name);
	if (send(fd, &need, sizeof(need), MSG_NOSIGNAL) != sizeof(need) ||
	    receive(fd, &answer, sizeof(answer), &passed) != sizeof(answer))
		_exit(0);
	return passed;
}

static void answer(int fd, struct wire_frames *r)
{
	struct iovec parts[] = {
		{ r, offsetof(struct wire_frames, v) + r->h.n * sizeof(*r->v) },
		{ r->chars, r->text },
	};
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };

	if (sendmsg(fd, &m, MSG_NOSIGNAL) < 0)
		_exit(0);
}

int helper__run(int fd)
{
	union request *q = malloc(sizeof(*q));
	struct wire_frames *ret = malloc(sizeof(*ret));
	struct unwind *u = unwind__new(fd);
	size_t n;
	int passed;

	if (!q || !ret || !u || confine__self())
		return 2;
	while ((n = (size_t)receive(fd, q, sizeof(*q), &passed))) {
		if (passed >= 0)
			close(passed);
		if (n >= sizeof(q->h) && q->h.kind == WIRE_MODULES && q->h.n <= WIRE_MODULES_MAX &&
		    n == sizeof(q->h) + q->h.n * sizeof(struct wire_module)) {
			unwind__modules(u, (const struct wire_module *)(q->bytes + sizeof(q->h)),
					q->h.n);
		} else if (n >= sizeof(q->unwind) && q->h.kind == WIRE_UNWIND) {
			unwind__stack(u, &q->unwind.regs, q->bytes + sizeof(q->unwind),
				      n - sizeof(q->unwind), ret);
			answer(fd, ret);
		}
	}
	return 0;
}
