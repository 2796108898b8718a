/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The surroundings of a process that matter to a capture: its container and pod, whether another
 * kernel runs its programs (guest), and its filters of system calls (seccomp).
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "inspect/proc.h"

#define CGROUP_PATH_MAX 1024

struct subprocess_lost;

/* Container and pod of a process, from the path of its control group. Supports docker, containerd,
 * CRI-O, podman, Kubernetes, LXC and systemd-nspawn, both cgroup drivers, and cgroup v1 and v2.
 * Texts that are not known are "". All of them are hostile except the hexadecimal ids. */
struct cgroup {
	char path[CGROUP_PATH_MAX]; /* path in the hierarchy that was chosen, may be cut */
	char container[65];	    /* id: 64 hexadecimal digits */
	char runtime[24];	    /* docker, containerd, crio, podman, nerdctl, lxc, nspawn */
	char name[65];		    /* name of the container, if in the path (LXC, nspawn) */
	/* UID of the pod: 8-4-4-4-12 hexadecimal digits, or 32 without dashes (static pods). */
	char pod[37];
	bool deleted; /* the control group was removed; only ended processes can be in such a one */
};

/* Sets *ret from text, the content of /proc/PID/cgroup, which may be any bytes. Ignores unknown
 * paths. */
void cgroup__parse(const char *text, size_t len, struct cgroup *ret);
/* Reads and parses /proc/PID/cgroup. 0, or -errno if the process does not exist or the file is not
 * readable; then all texts in *ret are "". */
int cgroup__read(pid_t pid, struct cgroup *ret);
/* Whether both processes are in the same pod; without pods, in the same container; or both in no
 * container. */
bool cgroup__same_place(const struct cgroup *a, const struct cgroup *b);

/*
 * Names of a container and its pod; a control group has only their ids. They come from
 * the container runtime's files on the host or, if these are unreadable, from the process's own
 * files and environment. name_from and pod_from name the source.
 */

#define CONTAINER_NAME_MAX 256

/* Hostile text; "" if not known. */
struct container_names {
	char name[CONTAINER_NAME_MAX]; /* name of the container */
	const char *name_from; /* source of name: "docker", "OCI bundle", ...; NULL: no name */
	char pod[CONTAINER_NAME_MAX];	/* name of the pod */
	char space[CONTAINER_NAME_MAX]; /* Kubernetes namespace of the pod */
	/* Source of the pod's name: "OCI bundle", or the variable of the initial environment
	 * ("POD_NAME", "HOSTNAME"); NULL: no name. */
	const char *pod_from;
};

/* Finds the names and always fills ret. If pid has ended, fewer sources remain. root: prefix of
 * paths on the host; "" except in tests. */
void container__names(pid_t pid, const struct cgroup *cgroup, const char *root,
		      struct container_names *ret);

#define CONTAINER_SHOWN 128

/* Writes the name of the container, or the start of its ID, and the name or UID of the pod, clean;
 * "" where there is none. Both buffers have CONTAINER_SHOWN bytes. names NULL: only what the
 * control group has. */
void container__show(const struct cgroup *cgroup, const struct container_names *names,
		     char *container, char *pod);

/* Writes the shell command that would end all of a container or pod. It has only names that their
 * processes cannot choose: of the control group, and of the runtime's files. "": none is known for
 * certain. Returns buf. */
char *container__end_command(char *buf, size_t size, const struct cgroup *cgroup,
			     const struct container_names *names);

/* As container__names() with the root "", for the processes of other people: their own files, which
 * may never answer, are read in a helper process, for half a second at most. lost: for the helpers
 * of all calls. The caller must have one thread. */
void container__names_in_time(pid_t pid, const struct cgroup *cgroup, struct container_names *ret,
			      struct subprocess_lost *lost);

/* True if the control group was removed (processes that have ended may still be in it), or the
 * runtime's files on this host lack the container: docker's, containerd's, podman's or CRI-O's.
 * False where the files are not readable, or elsewhere. root: as in container__names(). */
bool container__is_gone(const struct cgroup *cgroup, const char *root);

/*
 * Processes of this host that run programs under a kernel of their own: gVisor, virtual machines.
 * The programs are no processes of the host, or their code does not run from the files that probes
 * belong to. So the host's kernel sees none of their calls.
 */

struct maps;
struct proc;

enum guest_kind {
	GUEST_NONE,
	GUEST_GVISOR, /* gVisor's kernel, its file server, or one of its address spaces */
	GUEST_KATA,   /* a virtual machine of Kata Containers, or a helper of one */
	GUEST_VM,     /* another virtual machine */
};
/* exe: where /proc/PID/exe leads; "" if unknown. cmdline: len bytes of arguments, each with a NUL.
 * All three are hostile: a process that looks like a guest is at worst not traced. */
enum guest_kind guest__judge(const char *exe, const char *cmdline, size_t len,
			     const struct maps *maps);
/* As guest__judge(), for an open process. */
enum guest_kind guest__kind(const struct proc *p, const struct maps *maps);
/* Static text: why a process of this kind cannot be traced and what to do; "" for GUEST_NONE. */
const char *guest__text(enum guest_kind kind);
/* True if memtrace-bpf itself runs in gVisor, by the release and the version of uname(). */
bool guest__in_gvisor(const char *release, const char *version);

/*
 * Return probes and seccomp. From Linux 6.11 on a function with a return probe returns through the
 * system call uretprobe, on x86-64 only. A seccomp filter that does not allow it, as in containers,
 * kills the process. Later kernels exempt the call from filters.
 */

/* Whether this kernel applies filters to uretprobe, tried once in a child process. For tests, the
 * environment variable MEMTRACE_FILTERED_RETURNS makes the result true. */
bool seccomp__filters_returns(void);
/* Highest seccomp mode of all threads (/proc/PID/task/TID/status): 0 none, 1 strict, 2 filter.
 * -errno. */
int seccomp__mode(const struct proc *p);
/* Whether the kernel with this uname() release keeps shadow stacks valid with return probes: from
 * Linux 6.11 on. */
bool seccomp__keeps_shadow_stack(const char *release);
/* Whether a return probe is safe in this process. Call it before each attach: a process may set a
 * filter at any time. */
bool seccomp__allows_returns(const struct proc *p);
