/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Who holds a GPU's memory: the processes that have its device node open, joined with NVML's lists,
 * and the rest of the device's used bytes. In each table the parts add up to the used bytes.
 * holder_processes reads /proc. gpu_table computes from its input, without any system call.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/subprocess.h"
#include "inspect/container.h"
#include "inspect/nvml.h"

/* ---- processes as /proc shows them ---- */

/* A process that has a device node of NVIDIA open, or that NVML lists. All text is clean. */
struct holder_process {
	pid_t pid, parent; /* parent 0: none in this PID namespace, or not known */
	pid_t inner;	   /* PID in its own PID namespace; 0: not known */
	uid_t uid;
	char state; /* as in /proc/PID/stat: 'R', 'S', 'D', 'T', 't', 'Z', ...; 'X': no such process
		     */
	uint64_t started; /* CLOCK_BOOTTIME, ns, as precise as a kernel tick */
	char user[64];	  /* name, or ID */
	char command[256];
	char container[CONTAINER_SHOWN]; /* name, or start of the ID; "": none */
	char pod[CONTAINER_SHOWN];	 /* name, or UID; "": none */
	char job[96];			 /* "slurm 123", "ray 01000000"; "": none */
	bool asleep_known;		 /* no thread of it has run for `asleep` ns */
	uint64_t asleep;
	bool threads_left;   /* a zombie: its main thread has ended, others have not */
	bool container_gone; /* its control group, or the container of that ID, no longer exists */
	bool parent_gone;    /* the process that started it has ended */
	char parent_command[64]; /* "": not known */
	char end_all[256]; /* shell command that would end its whole container, pod or Slurm job,
			      by names that it cannot choose; "": none is known for certain */
	bool unanswered;  /* it was not possible to read its arguments, environment and container in
			     time: they are not known */
	bool nodes_known; /* this user may read its descriptors */
	uint64_t nodes;	  /* bit m: it has /dev/nvidia<m> open */
};

#define HOLDER_PROCESSES 1024

struct holder_processes {
	struct holder_process v[HOLDER_PROCESSES];
	size_t n;
	size_t left_out;    /* processes without a place */
	size_t closed;	    /* processes whose descriptors this user may not read */
	size_t not_read;    /* processes without a place that did not answer in time */
	bool own_namespace; /* memtrace-bpf runs in a PID namespace of its own: NVML's PIDs are the
			       host's */
	bool has_nodes;	    /* the kernel has NVIDIA's device nodes; under WSL it has none */
};

/* Reads all processes that have a device node open or that the answer lists. a: NULL, no answer.
 * As another user than root, reads of other users' processes what /proc shows to everybody. A
 * process whose files never answer costs half a second and is `unanswered`; a helper process reads.
 * lost: for the helpers of all calls. The caller must have one thread. 0 or -errno. */
int holder_processes__read(struct holder_processes *ret, const struct gpus_answer *a,
			   struct subprocess_lost *lost);
/* The process with this PID, or NULL. */
const struct holder_process *holder_processes__find(const struct holder_processes *p, pid_t pid);

/* Reads only who a process is: state, uid, user, command, container and pod. The user has a name
 * only if /etc/passwd has it, and the container the name or ID that its control group has. A state
 * of 'X': there is no such process. */
void holder_process__read_name(struct holder_process *ret, pid_t pid);

/* Parts of the reader, for tests. */

/* Fills the fields of /proc/PID/stat: state, parent, started; and the session. False: the text is
 * malformed. */
bool holder_process__parse_stat(struct holder_process *p, const char *text, pid_t *session);
/* Sets the job from the path of a control group, or from a variable of the environment, which is
 * text of len bytes with a NUL after each variable. A Slurm job of the path also sets end_all. */
void holder_process__set_job(struct holder_process *p, const char *cgroup, const char *env,
			     size_t len);

/* ---- names of a few processes, without waiting ---- */

struct holder_names;

/* Starts a thread that reads the names of these processes. NULL with errno: it did not start. */
struct holder_names *holder_names__new(const pid_t *pid, size_t n);
/* The processes in the order of the PIDs, as holder_process__read_name(); valid until
 * holder_names__free(). NULL: not all have been read so far. */
const struct holder_process *holder_names__get(const struct holder_names *h, size_t *n);
/* Never waits for the thread. NULL is fine. */
void holder_names__free(struct holder_names *h);

/* ---- tables ---- */

/* PyTorch's figures of a process on a GPU. */
struct holder_torch {
	pid_t pid;
	uint32_t gpu;
	uint64_t allocated, reserved; /* bytes */
};

/* A row: a process on a device, or in a slice of it. */
struct gpu_holder {
	const struct holder_process *process;
	uint32_t kinds, slice; /* as in struct gpus_process; kinds 0: NVML does not list it */
	bool open;	       /* it has the device node open */
	bool bytes_known, torch_known, idle_known;
	uint64_t bytes;
	uint64_t allocated, reserved;
	/* ns since its last work: the driver's figure, or a lower bound, the time for which no
	   thread of the process ran */
	uint64_t idle;
	bool idle_by_driver;
	char why[160];	     /* why bytes is not known; "": it is */
	bool left_over;	     /* probably left over */
	unsigned rank;	     /* sort key: larger is more probably left over */
	char reason[256];    /* "parent gone, idle for 41m 00s"; "": nothing unusual */
	char command[64];    /* shell command that would end it, for the user to judge; "": none */
	const char *end_all; /* the process's end_all, if it is probably left over; otherwise "" */
};

struct gpu_table {
	uint32_t gpu;
	struct gpu_holder *v; /* most probably left over first, then the largest */
	size_t n;
	bool used_known, reserved_known;
	uint64_t total, used, reserved; /* used: all that is not free, with the reserve */
	uint64_t listed;		/* sum of the rows */
	size_t n_hidden;		/* processes that NVML lists and this host does not show */
	uint64_t hidden;		/* their bytes */
	/* used - reserved - listed - hidden. Negative: memory that two processes share counts
	 * twice, or changed between two calls. Known if used is. */
	int64_t unexplained;
	char why[256]; /* why figures are missing; "": none is */
};

struct gpu_table_input {
	const struct gpus_answer *answer; /* NULL: none */
	const char *no_answer;		  /* why; "": not known */
	uint32_t gpu;
	int minor;				  /* /dev/nvidia<minor>; -1: not known */
	bool mig, vgpu;				  /* as in struct gpu */
	const struct holder_processes *processes; /* borrowed by the table */
	const struct holder_torch *torch;
	size_t n_torch;
	uint64_t monotonic, boottime; /* now, ns */
	uint64_t idle;		      /* a process that is idle for so long may be left over, ns */
};

/* Joins the input into *ret. 0 or -ENOMEM. */
int gpu_table__join(const struct gpu_table_input *in, struct gpu_table *ret);
void gpu_table__free(struct gpu_table *t);
