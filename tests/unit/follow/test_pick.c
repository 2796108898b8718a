/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Selection of processes and the places they run in: formats of control groups, container runtimes
 * and command lines. */
#include "unit/cmocka.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/pick.h"
#include "inspect/container.h"
#include "unit/scratch.h"

#define ID "3f1b0c9a7d5e42116a8b9c0d1e2f30415263748596a7b8c9dadbecfd0e1f2a3b"
#define ID2 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define UID "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
#define UID_ "0f1e2d3c_4b5a_6978_8796_a5b4c3d2e1f0"
#define STATIC "0123456789abcdef0123456789abcdef"

static const struct {
	const char *text, *path, *container, *runtime, *name, *pod;
} known[] = {
	/* docker: v2 with systemd, v1 with either driver, rootless, hybrid host with empty v2 */
	{ "0::/system.slice/docker-" ID ".scope\n", "/system.slice/docker-" ID ".scope", ID,
	  "docker", "", "" },
	{ "12:memory:/docker/" ID "\n11:cpu,cpuacct:/docker/" ID
	  "\n0::/system.slice/containerd.service\n",
	  "/docker/" ID, ID, "docker", "", "" },
	{ "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID ".scope\n", NULL,
	  ID, "docker", "", "" },
	{ "0::/\n9:memory:/system.slice/docker-" ID ".scope\n", "/system.slice/docker-" ID ".scope",
	  ID, "docker", "", "" },
	/* seen from another cgroup namespace */
	{ "0::/../docker-" ID ".scope\n", NULL, ID, "docker", "", "" },
	/* Kubernetes: containerd and CRI-O with systemd, cgroupfs, escaped systemd path under
	 * cgroupfs, static pods, kind */
	{ "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
	  ".slice/cri-containerd-" ID ".scope\n",
	  NULL, ID, "containerd", "", UID },
	{ "0::/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope/container\n", NULL, ID,
	  "crio", "", UID },
	{ "8:memory:/kubepods/besteffort/pod" UID "/" ID "\n", NULL, ID, "", "", UID },
	{ "5:memory:/system.slice/containerd.service/kubepods-besteffort-pod" UID_
	  ".slice:cri-containerd:" ID "\n",
	  NULL, ID, "containerd", "", UID },
	{ "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" STATIC
	  ".slice/cri-containerd-" ID ".scope\n",
	  NULL, ID, "containerd", "", STATIC },
	{ "0::/system.slice/docker-" ID2
	  ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" UID_
	  ".slice/cri-containerd-" ID ".scope\n",
	  NULL, ID, "containerd", "", UID },
	/* a pod's pause process, and docker within a pod */
	{ "0::/kubepods/burstable/pod" UID "\n", NULL, "", "", "", UID },
	{ "0::/kubepods/pod" UID "/" ID2 "/docker/" ID "\n", NULL, ID, "docker", "", UID },
	/* podman, rootful and rootless; its monitor is outside */
	{ "0::/machine.slice/libpod-" ID ".scope/container\n", NULL, ID, "podman", "", "" },
	{ "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope\n", NULL,
	  ID, "podman", "", "" },
	{ "0::/machine.slice/libpod-conmon-" ID ".scope\n", NULL, "", "", "", "" },
	{ "0::/kubepods.slice/crio-conmon-" ID ".scope\n", NULL, "", "", "", "" },
	/* plain containerd, ECS */
	{ "0::/system.slice/nerdctl-" ID ".scope\n", NULL, ID, "nerdctl", "", "" },
	{ "4:memory:/default/" ID "\n", NULL, ID, "", "", "" },
	{ "4:memory:/ecs/0123456789abcdef0123456789abcdef/" ID "\n", NULL, ID, "", "", "" },
	/* runtimes with the name in the path */
	{ "0::/lxc.payload.trainer/system.slice/x.service\n", NULL, "", "lxc", "trainer", "" },
	{ "3:memory:/lxc/trainer/init.scope\n", NULL, "", "lxc", "trainer", "" },
	{ "0::/machine.slice/machine-deb12.scope/payload\n", NULL, "", "nspawn", "deb12", "" },
	{ "0::/machine.slice/systemd-nspawn@deb12.service/payload\n", NULL, "", "nspawn", "deb12",
	  "" },
	{ "0::/lxc.payload.node/docker/" ID "\n", NULL, ID, "docker", "", "" },
	/* no container: a session, a service, slurm, a virtual machine; malformed ids and UIDs */
	{ "0::/user.slice/user-1000.slice/session-3.scope\n",
	  "/user.slice/user-1000.slice/session-3.scope", "", "", "", "" },
	{ "0::/\n4:memory:/process_api/26bc4b698a9d0148cd3d3582040873c6\n",
	  "/process_api/26bc4b698a9d0148cd3d3582040873c6", "", "", "", "" },
	{ "4:memory:/slurm/uid_1000/job_17/step_0/task_0\n", "/slurm/uid_1000/job_17/step_0/task_0",
	  "", "", "", "" },
	{ "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope\n", NULL, "", "", "", "" },
	{ "0::/system.slice/docker-" ID "f.scopes\n", NULL, "", "", "", "" },
	{ "0::/x/3F1B0C9A7D5E42116A8B9C0D1E2F30415263748596A7B8C9DADBECFD0E1F2A3B\n", NULL, "", "",
	  "", "" },
	{ "0::/kubepods/pod0f1e2d3c-4b5a_6978-8796-a5b4c3d2e1f0\n", NULL, "", "", "", "" },
	{ "0::/tripod" UID "\n", NULL, "", "", "", "" },
	{ "0::/\n", "/", "", "", "", "" },
	{ "", "", "", "", "", "" },
	{ "nonsense\n:::\n0::\n0::x\n:\n\n", "", "", "", "", "" },
};

static void test_cgroups(void **state)
{
	struct cgroup c;
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		/* exact size, so that sanitizers find reads beyond the end */
		char *text = malloc(strlen(known[i].text) ?: 1);

		memcpy(text, known[i].text, strlen(known[i].text));
		cgroup__parse(text, strlen(known[i].text), &c);
		free(text);
		if (known[i].path)
			assert_string_equal(c.path, known[i].path);
		assert_string_equal(c.container, known[i].container);
		assert_string_equal(c.runtime, known[i].runtime);
		assert_string_equal(c.name, known[i].name);
		assert_string_equal(c.pod, known[i].pod);
	}
}

/* Random input: reads stay within bounds (checked by `make asan`), and results have the promised
 * format. */
static void test_damaged_cgroups(void **state)
{
	uint64_t seed = 88172645463325252ULL;
	struct cgroup c;
	size_t i, k, len;
	char *text;

	for (i = 0; i < 200000; i++) {
		const char *from = known[i % (sizeof(known) / sizeof(known[0]))].text;

		len = strlen(from);
		text = malloc(len ?: 1);
		memcpy(text, from, len);
		for (k = 0; len && k < 1 + i % 3; k++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			text[seed % len] = seed >> 32 & 1 ? "/:-_.\n0"[(seed >> 33) % 7]
							  : (char)(seed >> 40);
		}
		if (len && (seed & 3) == 3)
			len = seed % len;
		cgroup__parse(text, len, &c);
		free(text);
		assert_true(!c.container[0] || strspn(c.container, "0123456789abcdef") == 64);
		assert_true(!c.pod[0] || strspn(c.pod, "0123456789abcdef-") == strlen(c.pod));
		assert_true(!c.pod[0] || strlen(c.pod) == 36 || strlen(c.pod) == 32);
		assert_true(!(c.container[0] && c.name[0]));
	}
}

static void test_long_path(void **state)
{
	char text[8192];
	struct cgroup c;
	int n;

	n = snprintf(text, sizeof(text), "0::/%02000d/docker-" ID ".scope\n", 0);
	cgroup__parse(text, (size_t)n, &c);
	assert_string_equal(c.container, ID);
	assert_int_equal(strlen(c.path), sizeof(c.path) - 1);
}

static void test_places(void **state)
{
	struct cgroup a = { .container = ID }, b = { .container = ID2 }, none = { 0 };
	struct cgroup pod = { .container = ID, .pod = UID },
		      again = { .container = ID2, .pod = UID };

	assert_true(cgroup__same_place(&a, &a));
	assert_false(cgroup__same_place(&a, &b));
	assert_false(cgroup__same_place(&a, &none));
	assert_true(cgroup__same_place(&none, &none));
	/* a container restarted within its pod */
	assert_true(cgroup__same_place(&pod, &again));
	assert_false(cgroup__same_place(&pod, &a));
}

/* ---- names ---- */

static char root[] = "/tmp/test-pick-XXXXXX";

static void write_file(const char *path, const char *text)
{
	char full[512], *slash;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int make_root(void **state)
{
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	return scratch__remove(root);
}

static void test_names(void **state)
{
	struct cgroup c = { .container = ID }, other = { .container = ID2, .pod = UID },
		      lxc = { .runtime = "lxc", .name = "trainer" };
	struct container_names n;

	container__names(getpid(), &c, root, &n);
	assert_string_equal(n.name, "");
	assert_null(n.name_from);
	write_file("/var/lib/docker/containers/" ID "/config.v2.json",
		   "{\"ID\":\"" ID "\",\"Name\":\"/hungry_bell\",\"Config\":{}}");
	container__names(getpid(), &c, root, &n);
	assert_string_equal(n.name, "hungry_bell");
	assert_string_equal(n.name_from, "docker");
	write_file("/var/lib/docker/containers/" ID "/config.v2.json",
		   "{\"ID\":\"" ID "\",\"Name\":17}");
	container__names(getpid(), &c, root, &n);
	assert_string_equal(n.name, "");
	write_file("/run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID2 "/config.json",
		   "{\"annotations\":{\"io.kubernetes.cri.container-name\":\"train\",\"io."
		   "kubernetes.cri.sandbox-name\":\"llama-worker-0\","
		   "\"io.kubernetes.cri.sandbox-namespace\":\"research\"}}");
	container__names(getpid(), &other, root, &n);
	assert_string_equal(n.name, "train");
	assert_string_equal(n.pod, "llama-worker-0");
	assert_string_equal(n.space, "research");
	assert_string_equal(n.pod_from, "OCI bundle");
	container__names(getpid(), &lxc, root, &n);
	assert_string_equal(n.name, "trainer");
	assert_string_equal(n.name_from, "cgroup");
}

/* Names when the host has no files, as when the tool runs in a container. */
static void test_names_of_environment(void **state)
{
	char *const with[] = { "A=HOSTNAME=no", "HOSTNAME=worker-7", "POD_NAME=", NULL };
	char *const both[] = { "HOSTNAME=worker-7", "POD_NAME=llama-worker-7", NULL };
	struct cgroup pod = { .container = ID, .pod = UID }, plain = { .container = ID };
	struct container_names n;
	int i, ready[2];

	for (i = 0; i < 2; i++) {
		char c;
		pid_t pid;

		assert_int_equal(pipe(ready), 0);
		pid = fork();
		if (!pid) {
			dup2(ready[1], 1);
			execle("/bin/sh", "sh", "-c", "echo; kill -STOP $$", (char *)NULL,
			       i ? both : with);
			_exit(1);
		}
		close(ready[1]);
		assert_int_equal(read(ready[0], &c, 1), 1);
		container__names(pid, &pod, "/nowhere", &n);
		assert_string_equal(n.pod, i ? "llama-worker-7" : "worker-7");
		assert_string_equal(n.pod_from, i ? "POD_NAME" : "HOSTNAME");
		container__names(pid, &plain, "/nowhere", &n);
		assert_string_equal(n.pod, "");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(ready[0]);
	}
}

/* ---- selection ---- */

static struct pick_process process(pid_t pid, const char *comm, const char *cmdline, size_t len)
{
	struct pick_process q = {
		.pid = pid, .parent = 1, .uid = 1000, .started = UINT64_MAX / 2, .len = len
	};

	snprintf(q.comm, sizeof(q.comm), "%s", comm);
	q.cmdline = malloc(len + 1);
	memcpy(q.cmdline, cmdline, len + 1);
	return q;
}

#define PROCESS(pid, comm, cmdline) process(pid, comm, cmdline, sizeof(cmdline) - 1)
#define NOBODY 0x3ffffff0 /* no such PID: queries about it find nothing */

static enum pick_is is(const struct pick_args *args, struct pick_process q)
{
	struct pick *p = pick__new(args);
	enum pick_is ret;

	assert_non_null(p);
	ret = pick__is(p, &q);
	pick__free(p);
	pick_process__free(&q);
	return ret;
}

static void test_patterns(void **state)
{
	struct pick_args a = { .names = { "train.py .*--lr 0\\.1" }, .n_names = 1 };
	char long_line[40000];

	assert_null(pick__bad_pattern("a|b(c)+$"));
	assert_non_null(pick__bad_pattern("a("));
	assert_int_equal(is(&a, PROCESS(NOBODY, "python",
					"python\0train.py\0-x\0--lr\0"
					"0.1\0")),
			 PICK_YES);
	assert_int_equal(is(&a, PROCESS(NOBODY, "python",
					"python\0train.py\0-x\0--lr\0"
					"0.2\0")),
			 PICK_NO);
	a.names[0] = "0\\.1$"; /* the last NUL is not a space */
	assert_int_equal(is(&a, PROCESS(NOBODY, "python",
					"python\0train.py\0--lr\0"
					"0.1\0")),
			 PICK_YES);
	a.names[0] = "^pt_main_thread$"; /* the thread name that the program sets */
	assert_int_equal(is(&a, PROCESS(NOBODY, "pt_main_thread", "python\0x.py\0")), PICK_YES);
	assert_int_equal(is(&a, PROCESS(NOBODY, "python", "python\0x.py\0")), PICK_NO);
	a.names[1] = "^python x";
	a.n_names = 2;
	assert_int_equal(is(&a, PROCESS(NOBODY, "python", "python\0x.py\0")), PICK_YES);
	memset(long_line, 'a', sizeof(long_line));
	long_line[sizeof(long_line) - 1] = '\0';
	assert_int_equal(is(&a, process(NOBODY, "python", long_line, 16383)), PICK_NO);
}

static void test_never(void **state)
{
	struct pick_args a = { .names = { "." }, .n_names = 1 }, all = { .all = true };

	assert_int_equal(is(&a, PROCESS(getpid(), "python", "python\0train.py\0")), PICK_NO);
	assert_int_equal(is(&a, PROCESS(getppid(), "make", "make\0test\0")), PICK_NO);
	assert_int_equal(is(&a, PROCESS(NOBODY, "sudo", "sudo\0python\0train.py\0")), PICK_NO);
	assert_int_equal(is(&a, PROCESS(NOBODY, "python", "python\0train.py\0")), PICK_YES);
	assert_int_equal(is(&all, PROCESS(NOBODY, "python", "python\0train.py\0")), PICK_IF_TORCH);
	assert_int_equal(is(&all, PROCESS(getpid(), "python", "python\0train.py\0")), PICK_NO);
}

static void test_container_and_pod(void **state)
{
	struct pick_args a = { .containers = { "3f1b0c9a" }, .n_containers = 1 },
			 b = { .pods = { UID }, .n_pods = 1 },
			 c = { .names = { "train" },
			       .n_names = 1,
			       .containers = { "trainer" },
			       .n_containers = 1 };
	struct pick_process q = PROCESS(NOBODY, "python", "python\0train.py\0"),
			    other = PROCESS(NOBODY, "python", "python\0serve.py\0");
	struct pick *p;

	p = pick__new(&a);
	assert_int_equal(pick__is(p, &q), PICK_NO);
	strcpy(q.cgroup.container, ID2);
	assert_int_equal(pick__is(p, &q), PICK_NO);
	strcpy(q.cgroup.container, ID);
	assert_int_equal(pick__is(p, &q), PICK_IF_TORCH);
	pick__free(p);
	p = pick__new(&b);
	assert_int_equal(pick__is(p, &q), PICK_NO);
	strcpy(q.cgroup.pod, UID);
	assert_int_equal(pick__is(p, &q), PICK_IF_TORCH);
	pick__free(p);
	p = pick__new(&c); /* all conditions must match */
	assert_int_equal(pick__is(p, &q), PICK_NO);
	q.cgroup = other.cgroup = (struct cgroup){ .name = "trainer" };
	assert_int_equal(pick__is(p, &q), PICK_YES);
	assert_int_equal(pick__is(p, &other), PICK_NO);
	pick__free(p);
	pick_process__free(&q);
	pick_process__free(&other);
}

static void test_follow(void **state)
{
	struct pick_args a = { .pids = { NOBODY }, .n_pids = 1, .follow = true };
	struct pick_process q = PROCESS(NOBODY, "python", "python\0train.py\0"),
			    next = PROCESS(NOBODY + 1, "python", "python\0train.py\0"),
			    other = PROCESS(NOBODY + 2, "python", "python\0train.py\0-x\0");
	struct pick *p = pick__new(&a);

	assert_true(pick__only_pids(p) && pick__open_ended(p));
	assert_int_equal(pick__is(p, &q), PICK_YES);
	assert_true(pick__is_given(p, &q));
	assert_int_equal(pick__remember(p, &q), 0);
	assert_int_equal(pick__is(p, &next), PICK_NO); /* a child process, for example a worker */
	assert_false(pick__is_given(p, &next));
	pick__ended(p, q.pid, UINT64_MAX / 4);
	next.started = 1; /* older than the parent, and outlives it */
	assert_int_equal(pick__is(p, &next), PICK_NO);
	next.started = UINT64_MAX / 2;
	next.uid++;
	assert_int_equal(pick__is(p, &next), PICK_NO);
	next.uid--;
	strcpy(next.cgroup.container, ID);
	assert_int_equal(pick__is(p, &next), PICK_NO);
	next.cgroup.container[0] = '\0';
	assert_int_equal(pick__is(p, &other), PICK_NO);
	assert_int_equal(pick__is(p, &next), PICK_YES);
	assert_true(pick__is_given(p, &next));
	assert_int_equal(pick__remember(p, &next), 0);
	assert_int_equal(pick__is(p, &other), PICK_NO); /* another process is followed already */
	pick__ended(p, next.pid, UINT64_MAX / 4);
	next.pid = NOBODY + 3;
	assert_int_equal(pick__is(p, &next), PICK_YES);
	pick__free(p);
	pick_process__free(&q);
	pick_process__free(&next);
	pick_process__free(&other);
}

static void test_process(void **state)
{
	struct pick_process q;
	char title[32];

	assert_int_equal(pick_process__read(getpid(), &q), 0);
	assert_int_equal(q.pid, getpid());
	assert_int_equal(q.parent, getppid());
	assert_int_equal(q.uid, geteuid());
	pick_process__free(&q);
	q = PROCESS(1, "python", "/usr/bin/python3\0train.py\0\x1b[31m\0");
	assert_string_equal(pick_process__title(&q, title, sizeof(title)),
			    "python3 train.py \\x1b[31m");
	pick_process__free(&q);
	/* If there is no space for folders, the script's name stays. */
	q = PROCESS(1, "python", "/usr/bin/python3\0-u\0/srv/jobs/llama/train.py\0--lr\0001\0");
	assert_string_equal(pick_process__title(&q, title, sizeof(title)),
			    "python3 -u train.py --lr 1");
	pick_process__free(&q);
	q = PROCESS(1, "python", "/usr/bin/python3\0-u\0/srv/train.py\0");
	assert_string_equal(pick_process__title(&q, title, sizeof(title)),
			    "python3 -u /srv/train.py");
	pick_process__free(&q);
	assert_int_equal(pick_process__read(-1, &q), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cgroups),
		cmocka_unit_test(test_damaged_cgroups),
		cmocka_unit_test(test_long_path),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_names_of_environment),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_container_and_pod),
		cmocka_unit_test(test_follow),
		cmocka_unit_test(test_process),
	};

	return cmocka_run_group_tests(tests, make_root, remove_root);
}
