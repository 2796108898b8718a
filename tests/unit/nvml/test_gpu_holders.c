/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tests the table of processes that hold a GPU, and the reading of /proc. */
#include "unit/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/container.h"
#include "inspect/gpu_holders.h"
#include "unit/without_ptrace.h"

#define GB (1ull << 30)
#define S UINT64_C(1000000000)
#define MINUTES (60 * S)

static struct holder_processes processes;
static struct gpus_answer answer;
static struct gpu_table_input input;

static struct holder_process *add_process(pid_t pid, char state)
{
	struct holder_process *p = &processes.v[processes.n++];

	*p = (struct holder_process){ .pid = pid, .state = state, .nodes = 1, .parent = 7 };
	return p;
}

static void add_listed(uint32_t pid, uint64_t used, uint64_t worked)
{
	answer.process[answer.n++] = (struct gpus_process){ 0,	    pid,	  used,
							    worked, GPUS_COMPUTE, GPUS_NO_SLICE };
}

static int begin(void **state)
{
	(void)state;
	memset(&processes, 0, sizeof(processes));
	memset(&answer, 0, sizeof(answer));
	answer.known = answer.has_memory = 1;
	answer.memory[0] = (struct gpus_memory){ 80 * GB, 50 * GB, GB };
	input = (struct gpu_table_input){ .answer = &answer,
					  .no_answer = "no driver",
					  .processes = &processes,
					  .monotonic = 7200 * S,
					  .idle = 10 * MINUTES };
	return 0;
}

static struct gpu_table join(void)
{
	struct gpu_table t;

	assert_int_equal(gpu_table__join(&input, &t), 0);
	if (t.used_known)
		assert_int_equal((int64_t)(t.reserved + t.listed + t.hidden) + t.unexplained,
				 t.used);
	return t;
}

static void check_row(const struct gpu_table *t, size_t i, pid_t pid, bool left_over,
		      const char *reason)
{
	assert_true(i < t->n);
	assert_int_equal(t->v[i].process->pid, pid);
	assert_string_equal(t->v[i].reason, reason);
	assert_int_equal(t->v[i].left_over, left_over);
}

static void test_order(void **state)
{
	struct holder_process *p;
	struct gpu_table t;

	add_process(10, 'S');
	add_process(11, 'S')->parent_gone = true;
	add_process(12, 'X');
	p = add_process(13, 'S');
	p->parent_gone = p->container_gone = true;
	snprintf(p->end_all, sizeof(p->end_all), "scancel 7");
	snprintf(processes.v[0].end_all, sizeof(p->end_all), "scancel 8");
	add_process(14, 'Z');
	add_process(15, 'T');
	add_process(16, 'D');
	for (uint32_t pid = 10; pid <= 16; pid++)
		add_listed(pid, GB, pid == 13 ? 7200 * S - 41 * MINUTES : 7199 * S);
	t = join();
	check_row(&t, 0, 12, true, "the driver lists it, but no process has this PID");
	check_row(&t, 1, 14, true, "it has ended, and its parent 7 has not collected it");
	check_row(&t, 2, 13, true, "parent gone, idle for 41m 00s, its container no longer exists");
	check_row(&t, 3, 11, true, "parent gone");
	check_row(&t, 4, 15, false, "it is stopped");
	check_row(&t, 5, 16, false, "it waits in the kernel (uninterruptible)");
	check_row(&t, 6, 10, false, "");
	assert_string_equal(t.v[0].command, "");
	assert_string_equal(t.v[1].command, "sudo kill -CHLD 7");
	assert_string_equal(t.v[2].command, "sudo kill 13");
	assert_string_equal(t.v[2].end_all, "scancel 7");
	assert_string_equal(t.v[6].end_all, "");
	assert_string_equal(t.v[4].command, "");
	assert_int_equal(t.unexplained, 42 * GB);
	gpu_table__free(&t);
}

/* The driver may go on to list a process that has ended, whose PID another one has now. */
static void test_reused_pid(void **state)
{
	struct holder_process *p = add_process(10, 'S');
	struct gpu_table t;

	p->parent_gone = p->nodes_known = true;
	p->nodes = 0;
	add_listed(10, GB, 0);
	t = join(); /* no device nodes, as in WSL */
	check_row(&t, 0, 10, true, "parent gone");
	gpu_table__free(&t);
	processes.has_nodes = true;
	t = join();
	check_row(&t, 0, 10, false,
		  "parent gone, it has no GPU open: the driver may mean an earlier process with "
		  "this PID");
	assert_string_equal(t.v[0].command, "");
	gpu_table__free(&t);
	p->state = 'Z'; /* has closed all */
	t = join();
	assert_true(t.v[0].left_over);
	gpu_table__free(&t);
}

static void test_sums(void **state)
{
	struct gpu_table t;

	add_process(10, 'S');
	add_process(11, 'S')->nodes = 2; /* another device */
	add_listed(10, 20 * GB, 0);
	add_listed(99, 5 * GB, 0); /* not shown by this host */
	add_listed(98, UINT64_MAX, 0);
	t = join();
	assert_int_equal(t.n, 1);
	assert_int_equal(t.listed, 20 * GB);
	assert_int_equal(t.n_hidden, 2);
	assert_int_equal(t.hidden, 5 * GB);
	assert_non_null(strstr(t.why, "hidepid"));
	assert_int_equal(t.unexplained, 24 * GB);
	gpu_table__free(&t);
	/* the rows have more than the device */
	answer.process[0].used = 60 * GB;
	t = join();
	assert_int_equal(t.unexplained, -16 * (int64_t)GB);
	gpu_table__free(&t);
	/* the driver does not tell its reserve */
	answer.memory[0].reserved = UINT64_MAX;
	t = join();
	assert_false(t.reserved_known);
	assert_int_equal(t.unexplained, -15 * (int64_t)GB);
	gpu_table__free(&t);
	/* figures that cannot be */
	answer.process[0].used = UINT64_MAX - 1;
	t = join();
	gpu_table__free(&t);
}

static void expect_why(const char *row, const char *table)
{
	struct gpu_table t = join();

	assert_non_null(strstr(t.v[0].why, row));
	if (*table)
		assert_non_null(strstr(t.why, table));
	else
		assert_string_equal(t.why, "");
	assert_false(t.v[0].bytes_known);
	gpu_table__free(&t);
}

static void test_reasons(void **state)
{
	add_process(10, 'S');
	expect_why("has the device open", "");
	add_listed(10, UINT64_MAX, 0);
	expect_why("does not tell the figure of this process", "");
	input.mig = true;
	expect_why("MIG", "");
	input.mig = false;
	answer.has_memory = 0;
	expect_why("uses the host's memory", "uses the host's");
	answer.has_memory = 1;
	answer.known = 0;
	expect_why("does not list the processes", "does not list the processes of this device");
	input.vgpu = true;
	expect_why("does not list the processes", "virtual GPU");
	input.vgpu = false;
	input.mig = true;
	expect_why("does not list the processes", "may not see its slices");
	input.mig = false;
	answer.known = 1;
	processes.own_namespace = true;
	expect_why("PID namespace", "--pid=host");
	input.answer = NULL;
	expect_why("no driver", "no driver");
	input.no_answer = "";
	expect_why("has not answered", "has not answered");
}

/* In a PID namespace of its own, all that the driver lists is hidden. */
static void test_own_namespace(void **state)
{
	struct gpu_table t;

	add_process(10, 'S');
	add_listed(10, 20 * GB, 0);
	processes.own_namespace = true;
	t = join();
	assert_int_equal(t.n, 1);
	assert_false(t.v[0].bytes_known);
	assert_int_equal(t.hidden, 20 * GB);
	gpu_table__free(&t);
}

static void test_idle_and_torch(void **state)
{
	struct holder_torch torch[] = { { 10, 1, 1, 2 },
					{ 10, 0, 3 * GB, 4 * GB },
					{ 11, 0, 5, 6 } };
	struct holder_process *p = add_process(10, 'S');
	struct gpu_table t;

	input.torch = torch;
	input.n_torch = 3;
	p->asleep_known = true;
	p->asleep = 20 * MINUTES;
	add_listed(10, GB, 0);
	t = join();
	check_row(&t, 0, 10, false, "no thread has run for 20m 00s");
	assert_int_equal(t.v[0].allocated, 3 * GB);
	assert_int_equal(t.v[0].reserved, 4 * GB);
	gpu_table__free(&t);
	answer.process[0].worked = 7199 * S; /* the driver knows better */
	t = join();
	check_row(&t, 0, 10, false, "");
	assert_int_equal(t.v[0].idle, S);
	gpu_table__free(&t);
	answer.process[0].worked = 8000 * S; /* later than now */
	t = join();
	assert_int_equal(t.v[0].idle, 20 * MINUTES);
	gpu_table__free(&t);
	/* one row for each slice */
	add_listed(10, GB, 0);
	answer.process[0].slice = 1;
	answer.process[1].slice = 0;
	t = join();
	assert_int_equal(t.n, 2);
	assert_int_equal(t.v[0].slice, 0);
	gpu_table__free(&t);
}

/* ---- texts of /proc ---- */

#define REST " 4 20 1 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0"

static void test_stat(void **state)
{
	struct holder_process p = { .pid = 5 };
	pid_t session = 0;

	assert_true(holder_process__parse_stat(&p, "5 (a) b (c)) S 1 2 3" REST, &session));
	assert_int_equal(p.state, 'S');
	assert_int_equal(p.parent, 1);
	assert_int_equal(session, 3);
	assert_true(p.started >= 12 * S);
	assert_false(holder_process__parse_stat(&p, "", &session));
	assert_false(holder_process__parse_stat(&p, "5 (x) S 1 2", &session));
	assert_false(holder_process__parse_stat(&p, "5 (x S 1 2 3" REST, &session));
}

static void check_job(const char *cgroup, const char *env, size_t len, const char *job,
		      const char *end)
{
	struct holder_process p = { .pid = 5, .end_all = "x" };

	holder_process__set_job(&p, cgroup, env, len);
	assert_string_equal(p.job, job);
	assert_string_equal(p.end_all, end);
}

static void test_job(void **state)
{
	static const char slurm[] = "A=1\0SLURM_JOB_ID=77\0RAY_JOB_ID=01000000";
	static const char hostile[] = "XSLURM_JOB_ID=1\0SLURM_JOB_ID=\0PBS_JOBID=1\n\033[2J";
	char *large = malloc(100000);

	check_job("/", "", 0, "", "");
	check_job("/slurm/uid_1000/job_123/step_0", "", 0, "slurm 123", "scancel 123");
	check_job("/system.slice/slurmstepd.scope/job_9/x", slurm, sizeof(slurm),
		  "slurm 9, ray 01000000", "scancel 9");
	check_job("/system.slice/node1_slurmstepd.scope/job_9/x", "", 0, "slurm 9", "scancel 9");
	/* names that a user chose */
	check_job("/user.slice/user-1.slice/slurmstepd.scope/job_9", "", 0, "slurm 9", "");
	check_job("/system.slice/docker-x.scope/slurmstepd.scope/job_9", "", 0, "slurm 9", "");
	check_job("/system.slice/a.service/b_slurmstepd.scope/job_9", "", 0, "slurm 9", "");
	check_job("/system.slice/a_slurmstepd.scope/b/slurmstepd.scope/job_9", "", 0, "slurm 9",
		  "");
	check_job("/lxc.payload.x/slurm/uid_1/job_9", "", 0, "slurm 9", "");
	check_job("/a/job_9", slurm, sizeof(slurm), "slurm 77, ray 01000000", "");
	check_job("/slurm/job_x", hostile, sizeof(hostile), "pbs 1\\x0a\\x1b[2J", "");
	check_job("/slurm/job_9; reboot", "", 0, "slurm 9", "scancel 9");
	check_job("/slurm/job_00000000000000000000000000000001", "", 0,
		  "slurm 00000000000000000000000000000001", "");
	assert_non_null(large);
	memset(large, 'A', 100000);
	memcpy(large, "LSB_JOBID=", 10);
	large[99999] = '\0';
	check_job("/", large, 100000, "lsf AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "");
	free(large);
}

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD "01234567-89ab-cdef-0123-456789abcdef"
#define POD_SLICE "kubepods-burstable-pod01234567_89ab_cdef_0123_456789abcdef.slice"
#define TASKS "/run/containerd/io.containerd.runtime.v2.task/"
#define STORAGE "/var/lib/containers/storage/"

static void shell(const char *root, const char *command, const char *path)
{
	char text[400];

	snprintf(text, sizeof(text), "%s %s%s", command, root, path);
	assert_int_equal(system(text), 0);
}

static bool is_gone(const char *root, const char *text)
{
	struct cgroup c;

	cgroup__parse(text, strlen(text), &c);
	return container__is_gone(&c, root);
}

static void test_removed_group(void **state)
{
	static const char *const groups[] = {
		"0::/system.slice/docker-" ID ".scope (deleted)\n",
		"0::/docker/" ID " (deleted)\n",
		"0::/kubepods.slice/" POD_SLICE "/cri-containerd-" ID ".scope (deleted)\n",
		"11:memory:/kubepods/burstable/pod" POD "/" ID " (deleted)\n0::/\n",
		"11:memory:/kubepods/burstable/pod" POD "/crio-" ID
		" (deleted)\n1:name=systemd:/\n",
		"0::/machine.slice/libpod-" ID ".scope/container (deleted)\n",
		"5:memory:/libpod_parent/libpod-" ID " (deleted)\n",
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
		".scope (deleted)\n",
	};

	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		assert_true(is_gone("/nowhere", groups[i]));
	assert_false(is_gone("/nowhere", "0::/system.slice/docker-" ID ".scope (deleted)x\n"));
}

/* Groups of each runtime, with its folder, and the container's entry in it. */
static void test_gone_container(void **state)
{
	static const struct {
		const char *group, *folder, *entry;
	} cases[] = {
		{ "0::/system.slice/docker-" ID ".scope\n", "/var/lib/docker/containers", NULL },
		{ "9:memory:/docker/" ID "\n1:name=systemd:/docker/" ID "\n",
		  "/var/lib/docker/containers", NULL },
		{ "0::/kubepods.slice/kubepods-burstable.slice/" POD_SLICE "/cri-containerd-" ID
		  ".scope\n",
		  TASKS "k8s.io", NULL },
		{ "0::/system.slice/containerd.service/" POD_SLICE ":cri-containerd:" ID "\n",
		  TASKS "k8s.io", "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io" },
		{ "0::/system.slice/nerdctl-" ID ".scope\n", TASKS "default", TASKS "other" },
		{ "4:memory:/kubepods/burstable/pod" POD "/" ID "\n", TASKS "k8s.io",
		  STORAGE "overlay-containers" },
		{ "0::/kubepods/burstable/pod" POD "/crio-" ID "\n", STORAGE "overlay-containers",
		  STORAGE "vfs-containers" },
		{ "0::/kubepods.slice/" POD_SLICE "/crio-" ID ".scope\n",
		  STORAGE "overlay-containers", NULL },
		{ "0::/machine.slice/libpod-" ID ".scope/container\n", STORAGE "overlay-containers",
		  "/run/containers/storage/overlay-containers" },
		{ "7:memory:/libpod_parent/libpod-" ID "\n", STORAGE "overlay-containers", NULL },
	};
	char root[] = "/tmp/memtrace-holders-XXXXXX", entry[300];

	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(entry, sizeof(entry), "%s/" ID, cases[i].entry ?: cases[i].folder);
		assert_false(is_gone(root, cases[i].group));
		shell(root, "mkdir -p", cases[i].folder);
		assert_true(is_gone(root, cases[i].group));
		shell(root, "mkdir -p", entry);
		assert_false(is_gone(root, cases[i].group));
		shell(root, "rm -r", entry);
		assert_true(is_gone(root, cases[i].group));
		shell(root, "rm -r", "/*");
	}
	rmdir(root);
}

static void check_end(const char *group, const char *name, const char *name_from, const char *pod,
		      const char *pod_from, const char *expected)
{
	struct container_names n = { .name_from = name_from, .pod_from = pod_from };
	char text[256];
	struct cgroup c;

	snprintf(n.name, sizeof(n.name), "%s", name);
	snprintf(n.pod, sizeof(n.pod), "%s", pod);
	snprintf(n.space, sizeof(n.space), "%s", *pod ? "team" : "");
	cgroup__parse(group, strlen(group), &c);
	assert_string_equal(container__end_command(text, sizeof(text), &c, &n), expected);
}

/* Only what a container cannot choose is in a command. */
static void test_end_of_a_container(void **state)
{
	static const char docker[] = "0::/system.slice/docker-" ID ".scope\n",
			  podman[] = "0::/machine.slice/libpod-" ID ".scope\n",
			  pod[] = "0::/kubepods.slice/" POD_SLICE "/cri-containerd-" ID ".scope\n";
	char longer[CONTAINER_NAME_MAX];

	check_end(docker, "web", "docker", "", NULL, "sudo docker rm -f web");
	check_end(docker, "web", "/run/.containerenv", "", NULL, "sudo docker rm -f 0123456789ab");
	check_end(docker, "a;reboot", "docker", "", NULL, "sudo docker rm -f 'a;reboot'");
	check_end(docker, "a\033[2J", "docker", "", NULL, "sudo docker rm -f 0123456789ab");
	check_end(docker, "--all", "docker", "", NULL, "sudo docker rm -f 0123456789ab");
	check_end(podman, "job", "OCI bundle", "", NULL, "sudo podman rm -f job");
	check_end(podman, "job", "/run/.containerenv", "", NULL, "sudo podman rm -f 0123456789ab");
	memset(longer, 'n', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	check_end(docker, longer, "docker", "", NULL, "");
	check_end(pod, "main", "OCI bundle", "train-0", "OCI bundle",
		  "kubectl delete pod train-0 -n team");
	check_end(pod, "main", "OCI bundle", "train-0", "POD_NAME", "");
	check_end(pod, "main", "OCI bundle", "--all", "OCI bundle", "");
	check_end("0::/system.slice/nerdctl-" ID ".scope\n", "web", "OCI bundle", "", NULL, "");
	check_end("0::/docker/" ID "/docker/" ID "\n", "web", "docker", "", NULL, "");
	check_end("0::/user.slice/user-1.slice/docker-" ID ".scope\n", "web", "docker", "", NULL,
		  "");
	check_end("0::/user.slice/x.scope\n", "web", "docker", "", NULL, "");
}

/* Groups whose container's files are elsewhere, or that have no container's name. */
static void test_not_gone(void **state)
{
	static const char *const groups[] = {
		"0::/docker/" ID "/docker/" ID "\n", /* docker in docker */
		"0::/docker/" ID "/kubelet.slice/" POD_SLICE "/cri-containerd-" ID ".scope\n",
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID ".scope\n",
		"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
		".scope/container\n",
		"0::/machine.slice/libpod-conmon-" ID ".scope\n",
		"0::/garden/" ID "\n",
		"0::/docker/" ID "0\n",
		"0::/docker/../../etc/passwd\n",
		"0::/system.slice/docker-*.scope\n",
		"0::/lxc.payload." ID "\n",
		"0::/lxc.payload.box/docker-" ID
		".scope\n", /* of root in the container, or its docker */
		"0::/lxc.payload.box/system.slice/docker-" ID ".scope\n",
		"0::/system.slice/x.service/docker-" ID ".scope\n",
		"0::/lxc/box/kubepods/pod" POD "/" ID "\n",
		"0::/machine.slice/machine-\033[2J.scope\n",
		"0::/kubepods/pod" POD "\n",
		"0::/\n",
		"",
	};
	char root[] = "/tmp/memtrace-holders-XXXXXX";

	assert_non_null(mkdtemp(root));
	shell(root, "mkdir -p", "/var/lib/docker/containers");
	shell(root, "mkdir -p", TASKS "k8s.io");
	shell(root, "mkdir -p", STORAGE "overlay-containers");
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		assert_false(is_gone(root, groups[i]));
	assert_true(is_gone(root, "0::/docker/" ID "\n"));
	/* docker's containers are in another folder now */
	shell(root, "mkdir -p", TASKS "moby/" ID);
	assert_false(is_gone(root, "0::/docker/" ID "\n"));
	shell(root, "rm -r", TASKS "moby");
	assert_true(is_gone(root, "0::/docker/" ID "\n"));
	if (geteuid()) { /* a folder that this user may not search */
		shell(root, "chmod 0", "/var/lib/docker/containers");
		assert_false(is_gone(root, "0::/docker/" ID "\n"));
		shell(root, "chmod 700", "/var/lib/docker/containers");
	}
	shell(root, "rm -r", "");
}

static int count_closed(void)
{
	struct holder_processes *p = calloc(1, sizeof(*p));

	return !p || holder_processes__read(p, NULL, &(struct subprocess_lost){ 0 }) || !p->closed;
}

/* root of a container lists the descriptors of other processes, and cannot read their links. */
static void test_unreadable_links(void **state)
{
	int status = without_ptrace__run(count_closed);

	if (status == WITHOUT_PTRACE_ALREADY)
		skip();
	assert_int_equal(status, 0);
}

/* Without /proc, no process is known: this is not the same as none. */
static void test_without_proc(void **state)
{
	char root[] = "/tmp/memtrace-holders-XXXXXX";
	struct holder_processes *p = calloc(1, sizeof(*p));
	struct subprocess_lost lost = { 0 };
	int status;
	pid_t child;

	assert_non_null(p);
	assert_non_null(mkdtemp(root));
	shell(root, "mkdir", "/dev");
	shell(root, "touch", "/dev/null"); /* a helper opens it */
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(chroot(root) ? 2 : holder_processes__read(p, NULL, &lost) != -ENOENT);
	assert_int_equal(waitpid(child, &status, 0), child);
	shell(root, "rm -r", "");
	free(p);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_order, begin),
		cmocka_unit_test_setup(test_reused_pid, begin),
		cmocka_unit_test_setup(test_sums, begin),
		cmocka_unit_test_setup(test_reasons, begin),
		cmocka_unit_test_setup(test_own_namespace, begin),
		cmocka_unit_test_setup(test_idle_and_torch, begin),
		cmocka_unit_test(test_stat),
		cmocka_unit_test(test_job),
		cmocka_unit_test(test_removed_group),
		cmocka_unit_test(test_gone_container),
		cmocka_unit_test(test_not_gone),
		cmocka_unit_test(test_end_of_a_container),
		cmocka_unit_test(test_unreadable_links),
		cmocka_unit_test(test_without_proc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
