/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The helper process that calls NVML, and the GPUs visible to a process. NVML is the dry run's: a
 * file describes the machine (tools/dryrun/nvml_machine.h).
 */
#include "unit/cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "inspect/nvml.h"
#include "inspect/proc.h"
#include "unit/scratch.h"

#define GB (1ull << 30)
#define VRAM (80 * GB)	 /* bytes of a dry-run device */
#define WAIT_LIMIT 20000 /* ms; limit for what takes a moment on an idle machine */

static char folder[] = "/tmp/memtrace-gpus-XXXXXX", machine[64];

static void describe(const char *text)
{
	int fd = open(machine, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	/* Replace the file at once: the helper may read at any time. */
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
	assert_int_equal(ftruncate(fd, (off_t)strlen(text)), 0);
	close(fd);
}

static void sleep_ms(int ms)
{
	poll(NULL, 0, ms);
}

static void begin(const char *devices, const char *text)
{
	setenv("MEMTRACE_DRYRUN_DEVICES", devices, 1);
	describe(text);
	gpus__open();
	for (int i = 0; i < WAIT_LIMIT / 10 && !gpus__count(); i++)
		sleep_ms(10);
	assert_int_equal(gpus__count(), atoi(devices));
}

static const struct gpus_answer *ask(uint64_t mask)
{
	uint64_t now = clock__monotonic();

	for (int i = 0; i < WAIT_LIMIT / 10; i++) {
		gpus__ask(mask, now);
		if (gpus__answered(mask, now))
			return gpus__answer();
		sleep_ms(10);
	}
	fail_msg("no answer");
	return NULL;
}

/* The only child of this process. */
static pid_t helper(void)
{
	char path[64];
	FILE *f;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "re");
	assert_non_null(f);
	if (fscanf(f, "%d", &pid) != 1)
		pid = 0;
	fclose(f);
	return pid;
}

static void test_memory_figures(void **state)
{
	const struct gpus_answer *a;

	begin("4", "minor 0 7\nreserved 1 1G\nmig 2 1\nprocess 0 4711 40G\nprocess 0 4712 "
		   "1G\nprocess 1 4711 2G\nprocess 3 9 3G\n");
	assert_int_equal(gpus__get(0)->minor, 7);
	assert_int_equal(gpus__get(1)->minor, 1);
	assert_int_equal(gpus__get(0)->total, VRAM);
	/* memory reserved by the driver is unusable */
	assert_int_equal(gpus__get(1)->total, VRAM - GB);
	assert_true(gpus__get(2)->mig && !gpus__get(2)->total);
	assert_true(strncmp(gpus__get(3)->uuid, "GPU-", 4) == 0);
	a = ask(7);
	assert_int_equal(a->known, 7);
	assert_int_equal(a->n, 3); /* the fourth device was not requested */
	assert_int_equal(a->process[0].pid, 4711);
	assert_int_equal(a->process[0].used, 40 * GB);
	assert_int_equal(a->process[2].gpu, 1);
	assert_int_equal(a->free[0], VRAM - 41 * GB);
	assert_int_equal(a->free[1], VRAM - 3 * GB);
	assert_int_equal(a->has_free, 3); /* the card's figure is not that of a slice */
	gpus__close();
	assert_int_equal(gpus__count(), 0);
}

static void test_a_driver_without_reserve(void **state)
{
	begin("1", "reserved 0 1G\nno_v2\nprocess 0 5 40G\n");
	assert_int_equal(gpus__get(0)->total, VRAM);
	assert_int_equal(ask(1)->free[0], VRAM - 41 * GB);
	gpus__close();
}

/* GB10 and the like: NVML answers "not supported", except for processes. */
static void test_a_gpu_with_the_hosts_memory(void **state)
{
	const struct gpus_answer *a;
	uint64_t total, available;

	begin("2", "no_memory\nprocess 0 5 40G\nmig 1 1\n");
	total = gpus__get(0)->total;
	assert_int_equal(memory__available(&available), 0);
	assert_in_range(total, available,
			(uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
	assert_int_equal(gpus__get(1)->total, 0);
	a = ask(3);
	assert_int_equal(a->known, 3);
	assert_int_equal(a->n, 1);
	assert_int_equal(a->process[0].used, 40 * GB);
	assert_int_equal(a->has_free, 1);
	assert_in_range(a->free[0], 1, total);
	gpus__close();
}

static void test_questions_keep_their_distance(void **state)
{
	uint64_t last = 0, first;

	begin("2", "process 0 5 40G\n");
	for (int i = 0; i < 5; i++) {
		const struct gpus_answer *a = ask(1);

		assert_true(a->begin >= last + 50000000);
		last = a->begin;
	}
	/* Two requests at about the same time share an answer. */
	first = clock__monotonic();
	gpus__ask(1, first);
	gpus__ask(2, first);
	assert_int_equal(ask(3)->known, 3);
	gpus__close();
}

static void test_nobody_waits_for_a_slow_driver(void **state)
{
	uint64_t now;

	begin("1", "process 0 5 40G\n");
	describe("delay 3000\nprocess 0 5 40G\n");
	now = clock__monotonic();
	for (int i = 0; i < 1000; i++) { /* fast, or this would take an hour */
		gpus__ask(1, now);
		assert_false(gpus__answered(1, now));
	}
	assert_false(gpus__wait(1, now));
	assert_false(gpus__wait(1, now));
	gpus__close();
	assert_int_equal(gpus__count(), 0);
}

static pid_t trace(pid_t pid)
{
	pid_t tracer = fork();

	if (!tracer) {
		if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
			_exit(1);
		kill(getpid(), SIGSTOP); /* must not wait for it */
		pause();
		_exit(0);
	}
	return tracer;
}

/* A helper that SIGKILL does not end, as in a call into a failed GPU, is abandoned. A traced
 * process cannot be waited for either. */
static void test_a_helper_that_cannot_be_killed(void **state)
{
	int status;
	pid_t tracer, pid;

	begin("1", "process 0 5 40G\n");
	describe("hang\n");
	gpus__ask(1, clock__monotonic());
	pid = helper();
	assert_true(pid > 0);
	tracer = trace(pid);
	assert_int_equal(waitpid(tracer, &status, WUNTRACED), tracer);
	if (!WIFSTOPPED(status)) {
		gpus__close();
		skip();
	}
	alarm(60);
	gpus__close();
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* the abandoned helper still exists */
	/* No second helper while the first exists. */
	gpus__open();
	assert_int_equal(gpus__count(), 0);
	gpus__close();
	alarm(0);
	kill(tracer, SIGKILL);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_a_helper_that_dies(void **state)
{
	begin("1", "process 0 5 40G\n");
	ask(1);
	kill(helper(), SIGKILL);
	for (int i = 0; i < WAIT_LIMIT / 10 && gpus__count(); i++)
		sleep_ms(10);
	assert_int_equal(gpus__count(), 0);
	assert_null(gpus__answer()); /* the old answer is not used */
	assert_false(gpus__wait(1, clock__monotonic()));
	gpus__close();
}

static void test_the_helper_has_no_rights(void **state)
{
	char path[300], line[256], target[PATH_MAX];
	int secret = open("/proc/self/status", O_RDONLY), n = 0; /* a descriptor that exec keeps */
	struct dirent *e;
	DIR *d;
	FILE *f;

	begin("1", "process 0 5 40G\n");
	snprintf(path, sizeof(path), "/proc/%d/status", helper());
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long long caps;
		unsigned uid;

		if (sscanf(line, "CapEff: %llx", &caps) == 1 ||
		    sscanf(line, "CapPrm: %llx", &caps) == 1)
			assert_int_equal(caps, 0), n++;
		if (!geteuid() && (sscanf(line, "CapBnd: %llx", &caps) == 1))
			assert_int_equal(caps, 0), n++;
		if (!geteuid() &&
		    (sscanf(line, "Uid: %u", &uid) == 1 || sscanf(line, "Gid: %u", &uid) == 1))
			assert_int_equal(uid, 65534), n++;
		if (!strncmp(line, "NoNewPrivs:", 11))
			assert_int_equal(atoi(line + 11), 1), n++;
	}
	fclose(f);
	assert_int_equal(n, geteuid() ? 3 : 6);
	snprintf(path, sizeof(path), "/proc/%d/fd", helper());
	d = opendir(path);
	for (n = 0; d && (e = readdir(d));) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", helper(), e->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = '\0';
		n++;
		assert_true(!strncmp(target, "socket:", 7) || !strcmp(target, "/dev/null") ||
			    !strcmp(target, machine));
	}
	if (d) {
		assert_true(n >= 3);
		closedir(d);
	}
	close(secret);
	gpus__close();
}

/* ---- the GPUs visible to a process ---- */

struct target {
	pid_t pid;
	struct proc *proc;
	struct nvml *smi;
};

/* Starts a process in a root folder with these device nodes. False: no rights for mknod or
 * chroot. */
static bool start(struct target *t, const char *root_name, const int *nodes, int n,
		  const char *visible)
{
	char path[128], c;
	int ready[2];

	snprintf(path, sizeof(path), "%s/%s", folder, root_name);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/%s/dev", folder, root_name);
	assert_int_equal(mkdir(path, 0755), 0);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s/dev/nvidia%d", folder, root_name, nodes[i]);
		if (mknod(path, S_IFCHR | 0666, makedev(195, nodes[i])))
			return false;
	}
	/* None of these is a GPU's node. */
	snprintf(path, sizeof(path), "%s/%s/dev/nvidia6", folder, root_name);
	assert_int_equal(mknod(path, S_IFCHR | 0666, makedev(1, 3)), 0);
	snprintf(path, sizeof(path), "%s/%s/dev/nvidia5", folder, root_name);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	assert_int_equal(pipe(ready), 0);
	if (visible)
		setenv("CUDA_VISIBLE_DEVICES", visible, 1);
	else
		unsetenv("CUDA_VISIBLE_DEVICES");
	t->pid = fork();
	if (!t->pid) {
		snprintf(path, sizeof(path), "%s/%s", folder, root_name);
		if (chroot(path) || chdir("/"))
			_exit(1);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	unsetenv("CUDA_VISIBLE_DEVICES");
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		return false;
	close(ready[0]);
	t->proc = proc__open(t->pid);
	assert_non_null(t->proc);
	t->smi = nvml__open(t->proc, 0);
	assert_non_null(t->smi);
	return true;
}

static void stop(struct target *t)
{
	nvml__free(t->smi);
	proc__free(t->proc);
	kill(t->pid, SIGKILL);
	assert_int_equal(waitpid(t->pid, NULL, 0), t->pid);
}

static struct nvml_figures figures(struct target *t)
{
	struct nvml_figures f;
	uint64_t asked;

	for (int i = 0; i < WAIT_LIMIT / 10; i++) {
		asked = nvml__ask(t->smi);
		for (int k = 0; k < 20; k++) {
			if (nvml__answered(t->smi, asked, &f))
				return f;
			sleep_ms(10);
		}
	}
	fail_msg("no answer");
	return f;
}

/* Eight GPUs; the process has the fourth. */
static struct target on_the_fourth(const char *name, const int *nodes, int n, const char *visible)
{
	struct target t = { 0 };
	char text[128];

	if (geteuid() || !start(&t, name, nodes, n, visible))
		skip();
	snprintf(text, sizeof(text), "process 3 %d 60G\nprocess 3 1 5G\n", t.pid);
	describe(text);
	return t;
}

static void test_a_container_with_one_gpu(void **state)
{
	struct target t = on_the_fourth("one", (int[]){ 3 }, 1, NULL);
	struct nvml_figures f = figures(&t);
	char uuid[NVML_UUID];
	const char *name;
	uint64_t total;

	assert_int_equal(nvml__devices(t.smi), 1);
	assert_int_equal(f.n, 1);
	assert_true(f.known[0] && f.has_free[0]);
	assert_int_equal(f.used[0], 60 * GB);
	assert_int_equal(f.free[0], VRAM - 65 * GB);
	assert_true(nvml__device(t.smi, 0, &name, &total));
	assert_int_equal(total, VRAM);
	/* the machine's fourth GPU */
	assert_string_equal(nvml__uuid(t.smi, 0, uuid), gpus__get(3)->uuid);
	assert_string_equal(uuid, "GPU-64727920-7275-6e20-6465-766963650003");
	stop(&t);
}

static void test_a_machine_with_all(void **state)
{
	struct target t = on_the_fourth("all", (int[]){ 0, 1, 2, 3, 4 }, 5, NULL);
	struct nvml_figures f = figures(&t);

	assert_int_equal(f.n, 5); /* eight less two that are no nodes and one missing */
	assert_int_equal(f.used[3], 60 * GB);
	assert_true(f.known[0] && !f.used[0]);
	stop(&t);
}

static void test_visible_devices_in_a_container(void **state)
{
	struct target t = on_the_fourth("visible", (int[]){ 2, 3 }, 2, "1");
	struct nvml_figures f = figures(&t);

	assert_int_equal(f.n, 1);
	assert_int_equal(f.used[0], 60 * GB);
	stop(&t);
}

/* As with Slurm: all nodes exist, a device control group denies the others, and CUDA counts
 * from 0. */
static void test_a_device_control_group(void **state)
{
	struct target t = on_the_fourth("slurm", (int[]){ 0, 1, 2, 3 }, 4, "0");
	struct nvml_figures f;

	nvml__set_process(t.smi, 1, 1);
	f = figures(&t);
	assert_int_equal(f.n, 1);
	assert_int_equal(f.used[0], 60 * GB);
	stop(&t);
}

/* In multi-instance mode NVML's figures of the card do not apply to the process. */
static struct target on_a_slice(const char *name, const int *nodes, int n)
{
	struct target t = { 0 };
	char text[128];

	if (geteuid() || !start(&t, name, nodes, n, NULL))
		skip();
	snprintf(text, sizeof(text), "mig 3 1\nprocess 3 %d 6G\n", t.pid);
	describe(text);
	return t;
}

static void test_a_slice_of_a_gpu(void **state)
{
	struct target t = on_a_slice("slice", (int[]){ 3 }, 1);
	struct nvml_figures f = figures(&t);
	char uuid[NVML_UUID];
	const char *name;
	uint64_t total;

	assert_int_equal(f.n, 1);
	assert_int_equal(f.used[0], 6 * GB);
	assert_false(f.has_free[0]);
	assert_true(nvml__device(t.smi, 0, &name, &total));
	assert_string_equal(name, "");
	assert_int_equal(total, 0);
	assert_string_equal(nvml__uuid(t.smi, 0, uuid), "");
	stop(&t);
}

/* Slices are devices of their own: among several GPUs the process's first device is unknown. */
static void test_a_slice_among_others(void **state)
{
	struct target t = on_a_slice("slices", (int[]){ 2, 3 }, 2);
	const char *name;
	uint64_t total;

	assert_int_equal(nvml__devices(t.smi), 0);
	assert_int_equal(figures(&t).n, 0);
	assert_int_equal(nvml__devices(t.smi), 0);
	assert_false(nvml__device(t.smi, 0, &name, &total));
	stop(&t);
}

static void test_an_order_that_cannot_be_is_dropped(void **state)
{
	struct target t = on_the_fourth("count", (int[]){ 2, 3 }, 2, NULL);
	const char *name;
	uint64_t total;

	nvml__set_process(t.smi, 3, 0); /* NVML sees three, the test's process two */
	assert_int_equal(figures(&t).n, 0);
	assert_false(nvml__device(t.smi, 0, &name, &total));
	stop(&t);
}

static void test_memory_on_a_device_that_nvml_does_not_list(void **state)
{
	struct target t = on_the_fourth("missing", (int[]){ 2, 3 }, 2, NULL);
	struct nvml_figures f = figures(&t);

	assert_int_equal(f.n, 2);
	assert_true(f.known[0] && f.known[1]);
	nvml__set_process(t.smi, 2, 1); /* on its first device, where NVML lists no process */
	f = figures(&t);
	assert_false(f.known[0]);
	for (int i = 0; i < 10 && f.n; i++)
		f = figures(&t);
	assert_int_equal(f.n, 0);
	stop(&t);
}

static void test_no_node_no_figure(void **state)
{
	struct target t = { 0 };
	struct nvml_figures f;

	if (geteuid() || !start(&t, "none", NULL, 0, NULL))
		skip();
	assert_int_equal(nvml__devices(t.smi), 0);
	assert_false(nvml__answered(t.smi, nvml__ask(t.smi), &f));
	nvml__read_last(t.smi, &f);
	assert_int_equal(f.n, 0);
	stop(&t);
}

static int setup(void **state)
{
	char self[PATH_MAX], path[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0 || !mkdtemp(folder))
		return -1;
	chmod(folder, 0755);
	self[n] = '\0';
	snprintf(path, sizeof(path), "%s/../../../dryrun", dirname(self));
	setenv("LD_LIBRARY_PATH", path, 1);
	snprintf(machine, sizeof(machine), "%s/machine", folder);
	setenv("MEMTRACE_DRYRUN_NVML", machine, 1);
	return 0;
}

/* Setup for tests that look at a process: starts the helper early, because that takes time. */
static int setup_eight(void **state)
{
	begin("8", "process 0 1 1G\n");
	return 0;
}

/* The fourth GPU is in multi-instance mode. */
static int setup_eight_mig(void **state)
{
	begin("8", "mig 3 1\n");
	return 0;
}

static int teardown_eight(void **state)
{
	gpus__close();
	return 0;
}

static int teardown(void **state)
{
	return scratch__remove(folder);
}

#define WITH_MIG(f) cmocka_unit_test_setup_teardown(f, setup_eight_mig, teardown_eight)
#define OF_EIGHT(f) cmocka_unit_test_setup_teardown(f, setup_eight, teardown_eight)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_figures),
		cmocka_unit_test(test_a_driver_without_reserve),
		cmocka_unit_test(test_a_gpu_with_the_hosts_memory),
		cmocka_unit_test(test_questions_keep_their_distance),
		cmocka_unit_test(test_nobody_waits_for_a_slow_driver),
		cmocka_unit_test(test_a_helper_that_cannot_be_killed),
		cmocka_unit_test(test_a_helper_that_dies),
		cmocka_unit_test(test_the_helper_has_no_rights),
		OF_EIGHT(test_a_container_with_one_gpu),
		OF_EIGHT(test_a_machine_with_all),
		OF_EIGHT(test_visible_devices_in_a_container),
		OF_EIGHT(test_a_device_control_group),
		WITH_MIG(test_a_slice_of_a_gpu),
		WITH_MIG(test_a_slice_among_others),
		OF_EIGHT(test_an_order_that_cannot_be_is_dropped),
		OF_EIGHT(test_memory_on_a_device_that_nvml_does_not_list),
		OF_EIGHT(test_no_node_no_figure),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
