/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A target that calls the hooks of hooks.cc as fast as it can, counts the calls and checks their
 * results. Reads one command per line from standard input and answers each with one line of JSON:
 *
 *   flood THREADS CALLS      rounds of allocations and frees per thread; 0: until the next line
 *   "beside THREADS", "calm" starts threads that run during the next commands; ends them
 *   throw CALLS              exceptions leave each hook, and two hooks at a time
 *   fork N, vfork N, spawn N children that call the hooks (spawn: another program)
 *   threads N                N threads at once that make a few calls each
 *   reload N                 unloads, loads and calls the library with the hooks
 *   load PATH N              loads, calls and unloads a library with cudaMalloc and cudaFree; first
 *                            keeps it loaded without calls, so that a tracer can find it
 *   hold PATH, cuda N        loads such a library and keeps it; calls it
 *   signals SECONDS          rounds under frequent SIGALRM, whose handler allocates
 *   strict, filter           rounds under seccomp: in a strict child; here with a filter
 *   exec N                   executes itself N times, without an answer
 *
 * The answer's counts cover all calls since the process started. "wrong" counts wrong results,
 * "bad" counts children with a wrong exit. Addresses are unique: round n of a thread uses its base
 * + 16 * n, so a recording can be checked for gaps.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hooks.h"

extern char **environ;

namespace
{

constexpr int SLOTS = 8;
constexpr int DEVICES = 64;
constexpr int BESIDE = 100; /* first device of background threads */
constexpr int OOM_EVERY = 1000, NODE_EVERY = 100;

struct Counts {
	std::atomic<uint64_t> report, oom, cpu_new, cpu_delete, edge, run, cuda, wrong, bad, caught;
};

Counts total;
std::atomic<bool> stopped;
std::atomic<int> next_base;
char **arguments;

/* The functions of the loaded library with the hooks. */
struct Library {
	void *handle = nullptr;
	uint64_t (*sum)() = nullptr;
	void (*report)(void *, int64_t, size_t, size_t, c10::Device) = nullptr;
	void (*oom)(int64_t, size_t, size_t, c10::Device) = nullptr;
	void (*cpu_new)(const void *, void *, size_t) = nullptr;
	void (*cpu_delete)(const void *, void *) = nullptr;
	void (*edge)(const at::Tensor &, torch::autograd::Edge &) = nullptr;
	void (*run)(torch::autograd::Engine *, std::shared_ptr<torch::autograd::GraphTask> &,
		    torch::autograd::Node *, torch::autograd::InputBuffer &,
		    const std::shared_ptr<torch::autograd::ReadyQueue> &) = nullptr;

	explicit Library(const char *path)
	{
		open(path);
	}

	void open(const char *path)
	{
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!handle) {
			fprintf(stderr, "%s\n", dlerror());
			exit(1);
		}
		find(sum, "hooks_sum");
		find(report, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
		find(oom, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
		find(cpu_new, "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm");
		find(cpu_delete, "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv");
		find(edge, "_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");
		find(run, "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_"
			  "9GraphTaskEEPNS0_4NodeERNS0_11Input"
			  "BufferERKS2_INS0_10ReadyQueueEE");
	}

	template <typename F> void find(F &f, const char *name)
	{
		f = reinterpret_cast<F>(dlsym(handle, name));
		if (!f)
			abort();
	}
};

/* One thread's calls, with the expected sum of their values. */
class Worker
{
      public:
	Worker(const Library &library, int base, int device)
	    : lib(library), index(device), first(uint64_t(base + 1) << 32)
	{
		before = lib.sum();
	}

	~Worker()
	{
		total.report += n.report;
		total.oom += n.oom;
		total.cpu_new += n.cpu_new;
		total.cpu_delete += n.cpu_delete;
		total.edge += n.edge;
		total.run += n.run;
		total.caught += n.caught;
		total.wrong += wrong + (lib.sum() - before != expected);
	}

	void round()
	{
		uint64_t ptr = first + 16 * rounds, size = 512 + rounds % 32 * 64;
		int slot = rounds % SLOTS;

		if (live[slot].ptr)
			drop(slot);
		live[slot] = { ptr, size };
		allocated += size;
		call_new(ptr, size);
		call_report(ptr, int64_t(size));
		if (rounds % OOM_EVERY == 0)
			call_oom(int64_t(size));
		if (rounds % NODE_EVERY == 0)
			run_node(false);
		rounds++;
	}

	void drop_all()
	{
		for (int i = 0; i < SLOTS; i++)
			if (live[i].ptr)
				drop(i);
	}

	/* Every hook throws; evaluate_function() also passes on what a hook called by its node
	 * throws. */
	void throw_all()
	{
		uint64_t ptr = first + 16 * rounds++;

		caught(hooks::mix(ptr, 1, 1, 2), [&] {
			n.cpu_new++;
			lib.cpu_new(this, pointer(ptr), 1);
		});
		caught(hooks::mix(ptr | 1, 3, 4, 5), [&] {
			n.cpu_delete++;
			lib.cpu_delete(this, pointer(ptr | 1));
		});
		caught(hooks::mix(ptr, 1, allocated + 1, allocated + 1 + index), [&] {
			n.report++;
			lib.report(pointer(ptr), 1, allocated + 1, allocated + 1, device());
		});
		call_report_free(ptr, 1);
		caught(hooks::mix(1, allocated, allocated, index), [&] {
			n.oom++;
			lib.oom(1, allocated, allocated, device());
		});
		tensor.number = 1;
		caught(hooks::mix(1, edge.input_nr, 6, 7), [&] {
			n.edge++;
			lib.edge(tensor, edge);
		});
		tensor.number = 2;
		run_node(true);
		node.throws = true;
		caught(hooks::mix(uint64_t(this), 1, 1, 2), [&] {
			n.run++;
			lib.run(&engine, task, &node, inputs, queue);
		});
		node.throws = false;
		round();
	}

      private:
	struct ThrowingNode : torch::autograd::Node {
		explicit ThrowingNode(Worker *w) : worker(w)
		{
		}
		void run(torch::autograd::InputBuffer &) override
		{
			if (!throws)
				return;
			worker->n.cpu_new++;
			worker->lib.cpu_new(worker, worker, 1);
		}

		Worker *worker;
		bool throws = false;
	};

	static void *pointer(uint64_t p)
	{
		return reinterpret_cast<void *>(p);
	}

	c10::Device device() const
	{
		return { 1, int8_t(index) };
	}

	template <typename F> void caught(uint64_t words, F call)
	{
		try {
			call();
			wrong++;
		} catch (const hooks::thrown &t) {
			wrong += t.words != words;
			n.caught++;
		}
	}

	void call_new(uint64_t ptr, uint64_t size)
	{
		n.cpu_new++;
		expected += hooks::mix(ptr, size, 1, 2);
		lib.cpu_new(this, pointer(ptr), size);
	}

	void call_report(uint64_t ptr, int64_t size)
	{
		n.report++;
		expected += hooks::mix(ptr, size, allocated, allocated + index);
		lib.report(pointer(ptr), size, allocated, allocated, device());
	}

	void call_report_free(uint64_t ptr, int64_t size)
	{
		n.report++;
		expected += hooks::mix(ptr, -2 * size, allocated, allocated + index);
		lib.report(pointer(ptr), -2 * size, allocated, allocated, device());
	}

	void call_oom(int64_t size)
	{
		n.oom++;
		expected += hooks::mix(size, allocated, allocated, index);
		lib.oom(size, allocated, allocated, device());
	}

	void run_node(bool throws)
	{
		node.number = 2 * rounds + throws;
		n.edge++;
		expected += hooks::mix(tensor.number, edge.input_nr, 6, 7);
		lib.edge(tensor, edge);
		if (throws) {
			caught(hooks::mix(node.number, inputs.number, 8, 9), [&] {
				n.run++;
				lib.run(&engine, task, &node, inputs, queue);
			});
			return;
		}
		n.run++;
		expected += hooks::mix(node.number, inputs.number, 8, 9);
		lib.run(&engine, task, &node, inputs, queue);
	}

	void drop(int slot)
	{
		uint64_t ptr = live[slot].ptr, size = live[slot].size;

		live[slot].ptr = 0;
		allocated -= size;
		n.cpu_delete++;
		expected += hooks::mix(ptr, 3, 4, 5);
		lib.cpu_delete(this, pointer(ptr));
		call_report(ptr, -int64_t(size));
	}

	const Library &lib;
	int index;
	uint64_t first, rounds = 0, allocated = 0, expected = 0, before, wrong = 0;
	struct {
		uint64_t ptr, size;
	} live[SLOTS] = {};
	struct {
		uint64_t report, oom, cpu_new, cpu_delete, edge, run, caught;
	} n = {};
	torch::autograd::Engine engine;
	std::shared_ptr<torch::autograd::GraphTask> task;
	std::shared_ptr<torch::autograd::ReadyQueue> queue;
	torch::autograd::InputBuffer inputs;
	ThrowingNode node{ this };
	torch::autograd::Edge edge{
		std::shared_ptr<torch::autograd::Node>(&node, [](torch::autograd::Node *) {}), 0
	};
	at::Tensor tensor{ 2 };
};

/* n: rounds; 0: until `stopped`. */
void rounds(const Library &lib, uint64_t n, int device = -1)
{
	int base = next_base++;
	Worker w(lib, base, device < 0 ? base % DEVICES : device);

	for (uint64_t i = 0; n ? i < n : !stopped.load(std::memory_order_relaxed); i++)
		w.round();
	w.drop_all();
}

using Threads = std::vector<std::thread>;
Threads beside;

void begin(Threads &all, const Library &lib, int threads, uint64_t n, int device)
{
	stopped = false;
	for (int i = 0; i < threads; i++)
		all.emplace_back(
			[&lib, n, i, device] { rounds(lib, n, device < 0 ? device : device + i); });
}

void wait(Threads &all)
{
	for (auto &t : all)
		t.join();
	all.clear();
}

void flood(const Library &lib, int threads, uint64_t n)
{
	struct pollfd fd = { 0, POLLIN, 0 };
	Threads all;

	begin(all, lib, threads, n, -1);
	if (!n) {
		poll(&fd, 1, -1);
		stopped = true;
	}
	wait(all);
}

/* Runs in a child, which counts for itself. Returns its exit code; 42: success. */
int child(const Library &lib)
{
	uint64_t wrong = total.wrong;

	rounds(lib, 50);
	return total.wrong == wrong ? 42 : 1;
}

void expect(pid_t pid, int status, const char *what)
{
	int got;

	if (pid < 0 || waitpid(pid, &got, 0) != pid || got != status) {
		fprintf(stderr, "%s: %s\n", what, pid < 0 ? strerror(errno) : "ended otherwise");
		total.bad++;
	}
}

void forks(const Library &lib)
{
	pid_t pid = fork();

	if (!pid)
		_exit(child(lib));
	rounds(lib, 50);
	expect(pid, 42 << 8, "fork");
}

/* The child shares this process's memory: its only effect is this thread's sum. */
void vforks(const Library &lib)
{
	volatile uint64_t before = lib.sum();
	pid_t pid = vfork();

	if (!pid) {
		lib.cpu_new(nullptr, reinterpret_cast<void *>(16), 64);
		lib.cpu_delete(nullptr, reinterpret_cast<void *>(16));
		_exit(lib.sum() - before == hooks::mix(16, 64, 1, 2) + hooks::mix(16, 3, 4, 5) ? 42
											       : 1);
	}
	expect(pid, 42 << 8, "vfork");
	rounds(lib, 50);
}

void spawns(const Library &lib)
{
	char program[] = "/bin/true";
	char *argv[] = { program, nullptr };
	pid_t pid;

	if (posix_spawn(&pid, program, nullptr, nullptr, argv, environ))
		pid = -1;
	rounds(lib, 50);
	expect(pid, 0, "posix_spawn");
}

void threads(const Library &lib, int n)
{
	Threads all;

	begin(all, lib, n, 20, -1);
	wait(all);
}

/* Unloads a library and checks that nothing else holds it. */
void close(void *handle, const char *path)
{
	if (dlclose(handle) || dlopen(path, RTLD_NOW | RTLD_NOLOAD))
		total.bad++;
}

void reload(Library &lib, const char *path)
{
	close(lib.handle, path);
	lib.open(path);
	rounds(lib, 50);
}

void *hold(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	total.bad += !handle;
	return handle;
}

void call_cuda(void *handle, int n)
{
	void *ptr = nullptr;

	if (!handle)
		return;
	auto take = reinterpret_cast<int (*)(void **, size_t)>(dlsym(handle, "cudaMalloc"));
	auto give = reinterpret_cast<int (*)(void *)>(dlsym(handle, "cudaFree"));
	while (n-- > 0) {
		total.wrong += take(&ptr, 4096) || !ptr || give(ptr);
		total.cuda += 2;
	}
}

void load(const char *path, bool call)
{
	void *handle = hold(path);

	if (call)
		call_cuda(handle, 20);
	else
		usleep(500000);
	if (handle)
		close(handle, path);
}

std::atomic<int> signals;

void on_signal(int)
{
	/* malloc in a handler is safe here: no interrupted thread is within malloc */
	void *p = malloc(100 + signals % 1000);

	memset(p, 1, 100);
	free(p);
	signals++;
}

void under_signals(const Library &lib, double seconds)
{
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = {};
	auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
	struct sigaction sa = {}, old;

	sa.sa_handler = on_signal;
	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &often, nullptr);
	while (std::chrono::steady_clock::now() < until)
		rounds(lib, 1000);
	setitimer(ITIMER_REAL, &never, nullptr);
	sigaction(SIGALRM, &old, nullptr);
	if (signals < 100)
		total.bad++;
}

/* Strict mode allows read, write, exit and sigreturn only, so the child ends by exit, not
 * exit_group. */
void strict(const Library &lib)
{
	pid_t pid = fork();

	if (!pid) {
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			_exit(2);
		syscall(SYS_exit, child(lib));
	}
	expect(pid, 42 << 8, "strict seccomp");
}

/* Allows all threads of this process only the system calls that it needs; others end the
 * process. */
void filter()
{
#ifndef SYS_poll /* poll() calls ppoll there */
#define SYS_poll SYS_ppoll
#endif
	static const int allowed[] = {
		SYS_read,	  SYS_write,	      SYS_futex,	   SYS_poll,
		SYS_exit,	  SYS_exit_group,     SYS_rt_sigreturn,	   SYS_mmap,
		SYS_munmap,	  SYS_mprotect,	      SYS_madvise,	   SYS_brk,
		SYS_clone3,	  SYS_clone,	      SYS_set_robust_list, SYS_rseq,
		SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_gettid,	   SYS_sched_getaffinity
	};
	std::vector<sock_filter> code = { { BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 } };
	sock_fprog program;

	for (int nr : allowed) {
		code.push_back({ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, uint32_t(nr) });
		code.push_back({ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW });
	}
	code.push_back({ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS });
	program = { static_cast<unsigned short>(code.size()), code.data() };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
		total.bad++;
}

void answer()
{
	printf("{\"report\": %" PRIu64 ", \"oom\": %" PRIu64 ", \"cpu_new\": %" PRIu64
	       ", \"cpu_delete\": %" PRIu64 ", \"edge\": %" PRIu64 ", \"run\": %" PRIu64
	       ", \"cuda\": %" PRIu64 ", \"caught\": %" PRIu64 ", \"wrong\": %" PRIu64
	       ", \"bad\": %" PRIu64 ", \"signals\": %d}\n",
	       total.report.load(), total.oom.load(), total.cpu_new.load(), total.cpu_delete.load(),
	       total.edge.load(), total.run.load(), total.cuda.load(), total.caught.load(),
	       total.wrong.load(), total.bad.load(), signals.load());
	fflush(stdout);
}

void execs(const Library &lib, int n)
{
	std::string left = std::to_string(n - 1);
	char *argv[] = { arguments[0], arguments[1], &left[0], nullptr };

	rounds(lib, 50);
	if (total.wrong)
		_exit(1);
	execv("/proc/self/exe", argv);
	abort();
}

template <typename F> void times(int n, F f)
{
	while (n-- > 0)
		f();
}

void *held;

void obey(Library &lib, const char *line)
{
	char word[16] = "", path[512] = "";
	double seconds = 0;
	uint64_t calls = 0;
	int n = 0;

	sscanf(line, "%15s %d %" SCNu64, word, &n, &calls);
	if (!strcmp(word, "flood"))
		flood(lib, n, calls);
	else if (!strcmp(word, "beside"))
		begin(beside, lib, n, 0, BESIDE);
	else if (!strcmp(word, "calm")) {
		stopped = true;
		wait(beside);
	} else if (!strcmp(word, "throw"))
		times(1, [&] {
			Worker w(lib, next_base++, DEVICES);

			times(n, [&] { w.throw_all(); });
			w.drop_all();
		});
	else if (!strcmp(word, "fork"))
		times(n, [&] { forks(lib); });
	else if (!strcmp(word, "vfork"))
		times(n, [&] { vforks(lib); });
	else if (!strcmp(word, "spawn"))
		times(n, [&] { spawns(lib); });
	else if (!strcmp(word, "reload"))
		times(n, [&] { reload(lib, arguments[1]); });
	else if (!strcmp(word, "threads"))
		threads(lib, n);
	else if (sscanf(line, "hold %511s", path) == 1)
		held = hold(path);
	else if (!strcmp(word, "cuda"))
		call_cuda(held, n);
	else if (sscanf(line, "load %511s %d", path, &n) == 2) {
		load(path, false);
		times(n, [&] { load(path, true); });
	} else if (sscanf(line, "signals %lf", &seconds) == 1)
		under_signals(lib, seconds);
	else if (!strcmp(word, "strict"))
		strict(lib);
	else if (!strcmp(word, "filter"))
		filter();
	else if (!strcmp(word, "exec"))
		execs(lib, n);
	else if (strcmp(word, "count"))
		total.bad++;
	answer();
}

} // namespace

int main(int argc, char **argv)
{
	std::string line;

	if (argc < 2)
		return 64;
	arguments = argv;
	Library lib(argv[1]);
	if (argc > 2 && atoi(argv[2]) > 0)
		execs(lib, atoi(argv[2]));
	printf("ready\n");
	fflush(stdout);
	for (char c; read(0, &c, 1) == 1;) {
		if (c != '\n') {
			line += c;
			continue;
		}
		obey(lib, line.c_str());
		line.clear();
	}
	return total.wrong || total.bad ? 1 : 0;
}
