/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The model's results from stacks: phases, lines, modules, layers, steps, groups. */
#include "record/files.h"
#include "unit/model_world.h"

static void test_phases(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t mod = module(&w, "", "Net", "Net");
	struct frame_spec fwd[] = { { "/u/t.py", "<module>", 0 },
				    { SP "nn/modules/module.py", "Module._wrapped_call_impl", mod },
				    { "/u/net.py", "Net.forward", 0 } };
	struct frame_spec bwd[] = { { "/u/t.py", "<module>", 0 },
				    { SP "_tensor.py", "Tensor.backward", 0 } };
	struct frame_spec bwd_old[] = { { "/u/t.py", "<module>", 0 },
					{ SP "autograd/__init__.py", "grad", 0 } };
	struct frame_spec engine[] = { { SP "autograd/graph.py", "_engine_run_backward", 0 } };
	struct frame_spec recompute[] = { { SP "autograd/graph.py", "_engine_run_backward", 0 },
					  { SP "nn/modules/module.py", "Module._wrapped_call_impl",
					    mod } };
	struct frame_spec opt[] = { { "/u/t.py", "<module>", 0 },
				    { SP "optim/adamw.py", "AdamW.step", 0 } };
	struct frame_spec closure[] = { { SP "optim/lbfgs.py", "step", 0 },
					{ "/u/t.py", "closure", 0 },
					{ SP "nn/modules/module.py", "_wrapped_call_impl", mod } };
	struct frame_spec data[] = { { "/u/t.py", "<module>", 0 },
				     { SP "utils/data/dataloader.py", "__next__", 0 } };
	struct frame_spec data_fwd[] = { { SP "utils/data/dataloader.py", "__next__", 0 },
					 { SP "nn/modules/module.py", "_wrapped_call_impl", mod } };
	struct frame_spec other[] = { { "/u/t.py", "<module>", 0 }, { "/u/t.py", "backward", 0 } };
	struct frame_spec custom[] = { { SP "autograd/function.py", "BackwardCFunction.apply", 0 },
				       { "/u/f.py", "backward", 0 } };
	struct frame_spec hook[] = { { "/u/f.py", "hook", 0 } };
	struct {
		struct frame_spec *f;
		uint32_t n, thread;
		enum phase want;
	} cases[] = {
		{ fwd, N(fwd), w.main_thread, PHASE_FORWARD },
		{ bwd, N(bwd), w.main_thread, PHASE_BACKWARD },
		{ bwd_old, N(bwd_old), w.main_thread, PHASE_BACKWARD },
		{ engine, N(engine), w.main_thread, PHASE_BACKWARD },
		{ recompute, N(recompute), w.main_thread, PHASE_BACKWARD },
		{ opt, N(opt), w.main_thread, PHASE_OPTIMIZER },
		{ closure, N(closure), w.main_thread, PHASE_FORWARD },
		{ data, N(data), w.main_thread, PHASE_DATA },
		{ data_fwd, N(data_fwd), w.main_thread, PHASE_FORWARD },
		{ other, N(other), w.main_thread, PHASE_OTHER },
		{ custom, N(custom), w.main_thread, PHASE_BACKWARD },
		{ hook, N(hook), w.autograd_thread, PHASE_BACKWARD },
		{ fwd, N(fwd), w.autograd_thread, PHASE_BACKWARD },
	};

	for (size_t i = 0; i < N(cases); i++) {
		uint32_t s = stack_of(&w, cases[i].f, cases[i].n, MT_WALK_OK);

		for (int again = 0; again < 2; again++)
			assert_int_equal(model__stack_phase(w.m, s, cases[i].thread, MT_WALK_OK),
					 cases[i].want);
	}
	assert_int_equal(model__stack_phase(w.m, 0, w.autograd_thread, MT_WALK_NO_FRAME),
			 PHASE_BACKWARD);
	assert_int_equal(model__stack_phase(w.m, 0, w.main_thread, MT_WALK_NO_FRAME), PHASE_OTHER);
	facts__set(w.f, "torch", "2.1.2+cu118"); /* this version's engine threads have no name */
	assert_int_equal(model__stack_phase(w.m, 0, w.main_thread, MT_WALK_NO_FRAME),
			 PHASE_BACKWARD);
	assert_int_equal(model__stack_phase(w.m, 0, w.main_thread, MT_WALK_NO_THREAD), PHASE_OTHER);
	assert_int_equal(model__stack_module(w.m, stack_of(&w, fwd, N(fwd), MT_WALK_OK)), mod);
	/* A truncated stack has an unknown root. */
	assert_int_equal(model__stack_phase(w.m, stack_of(&w, custom, 2, MT_WALK_TRUNCATED),
					    w.main_thread, MT_WALK_TRUNCATED),
			 PHASE_OTHER);
	assert_string_equal(phase__name(PHASE_OPTIMIZER), "optimizer");
	world__free(&w);
}

static void test_lines(void **state)
{
	static const struct {
		const char *file;
		bool user;
	} cases[] = {
		{ "/home/u/train.py", true },
		{ "train.py", true },
		{ "<stdin>", true },
		{ "<string>", true },
		{ "<ipython-input-3-abc>", true },
		{ "<python-input-0>", true },
		{ "/tmp/ipykernel_77/123.py", true },
		{ "/home/u/torch/train.py", true },
		{ "/home/u/mytorch/nn/x.py", true },
		{ "/home/u/python3.11/x.py", true },
		{ "/opt/py/stdx/x.py", true },
		{ "/opt/py/std/contextlib.py", false },
		{ SP "nn/functional.py", false },
		{ "/home/u/pytorch/torch/nn/functional.py", false },
		{ "/home/u/torch/torch/_ops.py", false },
		{ "/usr/lib/python3/dist-packages/x.py", false },
		{ "/home/u/.pyenv/versions/3.12.1/lib/python3.12/contextlib.py", false },
		{ "/usr/lib64/python3.13t/contextlib.py", false },
		{ "/usr/lib/python311.zip/contextlib.py", false },
		{ "<frozen importlib._bootstrap>", false },
		{ "<eval_with_key>.1", false },
		{ "/tmp/torchinductor_u/ab/cab.py", false },
		/* Inductor's, in vLLM's cache and in a dry run's */
		{ "/root/.cache/vllm/torch_compile_cache/1f/rank_0_0/inductor_cache/tz/"
		  "ctzlge7hworafp243advwirdmlqabcdefghijklmnopqrstuvwxy.py",
		  false },
		{ "/tmp/x/tz/ctzlge7hworafp243advwirdmlqabcdefghijklmnopqrstuvwx.py", true },
		{ "/tmp/x/tx/ctzlge7hworafp243advwirdmlqabcdefghijklmnopqrstuvwxy.py", true },
		{ "/root/.triton/cache/ab/kernel.py", false },
		/* torch_geometric's layers, in the folder of temporary files */
		{ "/tmp/torch_geometric.nn.conv.sage_conv_SAGEConv_propagate_89gz6hgy.py", false },
		{ "/tmp/torch_geometric.nn.conv.sage_conv_SAGEConv_propagate_*.py", false },
		{ "/tmp/__main___MyConv_edge_updater_k_2z6hgy.py", false },
		{ "/home/u/my_propagate_fast.py", true },
		{ "/tmp/train_resnet50.py", true },
		{ "/tmp/tmp89gz6hgy.py", true },
	};
	struct world w = world__new(AT_PEAK, 0);
	struct row_frame f;

	for (size_t i = 0; i < N(cases); i++) {
		struct frame_spec spec[] = { { "/home/u/root.py", "main", 0 },
					     { cases[i].file, "leaf", 0 } };
		uint32_t s = stack_of(&w, spec, 2, MT_WALK_OK);

		assert_true(model__stack_line(w.m, s, false, &f));
		assert_string_equal(f.file, cases[i].user ? cases[i].file : "/home/u/root.py");
		assert_int_equal(f.line, cases[i].user ? 2 : 1);
		assert_true(model__stack_line(w.m, s, true, &f));
		assert_string_equal(f.file, cases[i].file);
		assert_string_equal(f.func, "leaf");
	}
	/* Without user code the innermost named frame counts. */
	struct frame_spec lib[] = { { SP "a.py", "f", 0 },
				    { SP "nn/b.py", "g", 0 },
				    { NULL, NULL, 0 } };

	assert_true(model__stack_line(w.m, stack_of(&w, lib, 3, MT_WALK_OK), false, &f));
	assert_string_equal(f.func, "g");
	struct frame_spec none[] = { { NULL, NULL, 0 } };

	assert_false(model__stack_line(w.m, stack_of(&w, none, 1, MT_WALK_OK), false, &f));
	assert_false(model__stack_line(w.m, 0, false, &f));
	assert_false(model__stack_line(w.m, UINT32_MAX, false, &f));
	world__free(&w);
}

/* Files of Go and Rust: whose they are. */
static void test_compiled_libraries(void **state)
{
	static const struct {
		const char *path;
		bool is_others;
	} cases[] = {
		{ "/usr/local/go/src/runtime/malloc.go", true },
		{ "/usr/lib/go-1.19/src/net/http/server.go", true },
		{ "/usr/src/go/src/runtime/asm_amd64.s", true },
		{ "/opt/hostedtoolcache/go/1.22.1/x64/src/fmt/print.go", true },
		{ "/root/go/pkg/mod/github.com/x/y@v1.2.3/z.go", true },
		{ "/src/app/vendor/github.com/x/y/z.go", true },
		{ "server/runtime/malloc.go", true },
		{ "server/github.com/x/y@v1.2.3/z.go", true },
		{ "/go/src/app/main.go", false },
		{ "/home/u/go/src/github.com/me/app/main.go", false },
		{ "/home/u/src/log/main.go", false },
		{ "/home/u/app/runtime/run.go", false },
		{ "server/example.com/server/main.go", false },
		{ "server/./main.go", false },
		{ "main.go", false },
		{ "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/alloc/src/vec/mod.rs",
		  true },
		{ "server/library/alloc/src/alloc.rs", true },
		{ "/rust/deps/hashbrown-0.16.1/src/raw/mod.rs", true },
		{ "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/rt.rs",
		  true },
		{ "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/bytes-1.0/src/lib.rs",
		  true },
		{ "/home/u/server/src/main.rs", false },
		{ "/home/u/library/src/lib.rs", false },
		{ "/home/u/go/src/runtime/t.py", false },
	};

	for (size_t i = 0; i < N(cases); i++)
		if ((files__origin(cases[i].path, NULL) != FILE_USER) != cases[i].is_others)
			fail_msg("%s", cases[i].path);
}

#define IN_VLLM "/venv/lib/python3.12/site-packages/vllm/compilation/wrapper.py"
#define STD "/opt/py/std/"
#define CREATED "__create_fn__.<locals>.__init__"

/* Code in no file belongs to who called it, unless its name or the command line says more. */
static void test_generated_code(void **state)
{
	static const struct {
		struct frame_spec frames[5];
		int line; /* number of the frame that counts, from 1 */
		const char *command;
	} cases[] = {
		/* python -c */
		{ { { "<string>", "<module>", 0 }, { SP "nn/functional.py", "f", 0 } }, 1, NULL },
		{ { { "<string>", "<module>", 0 }, { "<string>", "f", 0 } }, 2, NULL },
		{ { { STD "threading.py", "Thread.run", 0 }, { "<string>", "f", 0 } }, 2, NULL },
		{ { { "<string>", "<module>", 0 },
		    { SP "nn/modules/module.py", "_call_impl", 0 },
		    { "<string>", "Net.forward", 0 },
		    { SP "nn/functional.py", "f", 0 } },
		  3,
		  NULL },
		/* user code that user code executes, and what PyTorch and others call of it */
		{ { { "/u/t.py", "main", 0 }, { "<string>", "<module>", 0 } }, 2, NULL },
		{ { { "/u/t.py", "main", 0 },
		    { SP "nn/modules/module.py", "_call_impl", 0 },
		    { "<string>", "Net.forward", 0 } },
		  3,
		  NULL },
		{ { { IN_VLLM, "run", 0 }, { "/u/t.py", "hook", 0 }, { "<string>", "f", 0 } },
		  3,
		  NULL },
		/* a library's, called directly, by more such code, and by PyTorch for it */
		{ { { "/u/t.py", "main", 0 },
		    { IN_VLLM, "call", 0 },
		    { "<string>", "execution_fn", 0 } },
		  1,
		  NULL },
		{ { { "/u/t.py", "main", 0 },
		    { IN_VLLM, "call", 0 },
		    { "<string>", "execution_fn", 0 },
		    { "<generated>", "f", 0 },
		    { SP "nn/functional.py", "f", 0 } },
		  1,
		  NULL },
		{ { { "/u/t.py", "main", 0 },
		    { IN_VLLM, "call", 0 },
		    { SP "nn/modules/module.py", "_call_impl", 0 },
		    { "<string>", "f", 0 } },
		  1,
		  NULL },
		{ { { "/u/t.py", "main", 0 },
		    { SP "_functorch/_aot_autograd/runtime_wrappers.py", "g", 0 },
		    { "<string>", "f", 0 } },
		  1,
		  NULL },
		/* torch.fx, attrs, numpy, dataclasses: by name, whoever calls it */
		{ { { "/u/t.py", "main", 0 }, { "<eval_with_key>.7", "forward", 0 } }, 1, NULL },
		{ { { "/u/t.py", "main", 0 }, { "<attrs generated init t.C>", "__init__", 0 } },
		  1,
		  NULL },
		{ { { "/u/t.py", "main", 0 }, { "<__array_function__ internals>", "f", 0 } },
		  1,
		  NULL },
		{ { { "/u/t.py", "main", 0 }, { "<string>", CREATED, 0 }, { SP "_ops.py", "f", 0 } },
		  1,
		  NULL },
		{ { { "<string>", "<module>", 0 }, { "<string>", CREATED, 0 } }, 1, NULL },
		/* processes that multiprocessing starts: no user code, so the innermost line */
		{ { { "<string>", "<module>", 0 },
		    { STD "multiprocessing/spawn.py", "spawn_main", 0 },
		    { IN_VLLM, "run_engine", 0 } },
		  3,
		  "[\"python\",\"-c\",\"from multiprocessing.spawn import spawn_main; "
		  "spawn_main()\"]" },
		{ { { SP "x.py", "f", 0 }, { IN_VLLM, "run", 0 }, { "<string>", "g", 0 } },
		  2,
		  NULL },
		{ { { IN_VLLM, "run", 0 }, { "<eval_with_key>.1", "forward", 0 } }, 1, NULL },
		/* a file that a library wrote to run it, and a script that somebody wrote so */
		{ { { "/u/t.py", "main", 0 },
		    { IN_VLLM, "f", 0 },
		    { "/tmp/tmp89gz6hgy.py", "g", 0 } },
		  1,
		  NULL },
		{ { { "/u/t.py", "main", 0 },
		    { IN_VLLM, "f", 0 },
		    { "/tmp/a.b_89gz6hgy.py", "g", 0 } },
		  1,
		  NULL },
		{ { { "/tmp/tmp89gz6hgy.py", "<module>", 0 }, { SP "_ops.py", "f", 0 } }, 1, NULL },
		{ { { "/u/t.py", "main", 0 }, { "<makefun-gen-3>", "f", 0 } }, 1, NULL },
		/* code that a person typed, although a library runs it */
		{ { { SP "x.py", "f", 0 }, { "<stdin>", "f", 0 } }, 2, NULL },
		{ { { IN_VLLM, "run_cell", 0 }, { "<ipython-input-3-abc>", "<module>", 0 } },
		  2,
		  NULL },
		{ { { IN_VLLM, "run_cell", 0 }, { "<command-42>", "<module>", 0 } }, 2, NULL },
		{ { { IN_VLLM, "run_cell", 0 }, { "<cell line: 1>", "<module>", 0 } }, 2, NULL },
		/* python -c TEXT has a function that a package calls; not the package's own */
		{ { { "<string>", "<module>", 0 },
		    { IN_VLLM, "run", 0 },
		    { "<string>", "App.answer", 0 } },
		  3,
		  "[\"python\",\"-uc\",\"class App:\\n def answer(self): pass\"]" },
		{ { { IN_VLLM, "run", 0 }, { "<string>", "answer.<locals>.<lambda>", 0 } },
		  2,
		  "[\"python\",\"-X\",\"dev\",\"-c\",\"def answer(): pass\"]" },
		{ { { "<string>", "<module>", 0 },
		    { IN_VLLM, "run", 0 },
		    { "<string>", "execution_fn", 0 } },
		  1,
		  "[\"python\",\"-c\",\"class App:\\n def answer(self): pass\"]" },
		{ { { "/u/t.py", "main", 0 }, { IN_VLLM, "run", 0 }, { "<string>", "answer", 0 } },
		  1,
		  "[\"python\",\"t.py\",\"-c\",\"answer\"]" },
	};

	for (size_t i = 0; i < N(cases); i++) {
		struct world w = world__new(AT_PEAK, 0);
		struct row_frame f;
		uint32_t n = 0;

		if (cases[i].command)
			facts__set(w.f, "cmdline", cases[i].command);
		while (n < N(cases[i].frames) && cases[i].frames[n].file)
			n++;
		assert_true(model__stack_line(w.m, stack_of(&w, cases[i].frames, n, MT_WALK_OK),
					      FRAMES_USER, &f));
		if (f.line != (uint32_t)cases[i].line)
			fail_msg("case %zu: frame %u, %s, and not %d", i, f.line, f.file,
				 cases[i].line);
		world__free(&w);
	}
}

/* A library that is linked into the program without debug information, such as Rust's own, has no
 * lines: the program's line counts, if it has one. */
static void test_linked_without_lines(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t library = native_loc(&w, "service", "_RNvMs4_NtCs1_5alloc7raw_vec+0x7e");
	uint32_t line = dict__native_loc(w.d, (struct dict_loc){ .file = str(&w, "/u/service.rs"),
								 .func = str(&w, "handle"),
								 .line = 2 });
	struct dict_frame frames[] = { { .loc = library },
				       { .loc = line },
				       { .loc = native_loc(&w, "service", "_start+0x21") } };
	struct row *r;
	size_t n;

	(void)state;
	alloc(&w, CUDA(0), 1, 100, dict__stack(w.d, frames, 3, MT_WALK_OK));
	frames[1] = frames[2];
	alloc(&w, CUDA(0), 2, 30, dict__stack(w.d, frames, 3, MT_WALK_OK));
	r = rows(&w, "cuda", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(n, 2);
	assert_string_equal(r[0].func, "handle");
	assert_int_equal(r[0].line, 2);
	assert_string_equal(r[1].func, "_RNvMs4_NtCs1_5alloc7raw_vec+0x7e");
	free(r);
	world__free(&w);
}

static void test_groups(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t enc = module(&w, "enc", "Encoder", "Net"),
		 lin = module(&w, "enc.lin", "Linear", "Net");
	struct frame_spec in_lin[] = { { "/u/t.py", "main", 0 },
				       { SP "nn/modules/module.py", "_wrapped_call_impl", enc },
				       { SP "nn/modules/module.py", "_wrapped_call_impl", lin } };
	struct frame_spec in_enc[] = { { "/u/t.py", "main", 0 },
				       { SP "nn/modules/module.py", "_wrapped_call_impl", enc } };
	uint32_t a = stack_of(&w, in_lin, 3, MT_WALK_OK), b = stack_of(&w, in_enc, 2, MT_WALK_OK);
	struct row *r;
	size_t n;

	alloc(&w, CUDA(0), 1, 100, a);
	alloc(&w, CUDA(0), 2, 30, b);
	feed(&w, (struct event){ .kind = EVENT_ALLOC,
				 .device = CUDA(0),
				 .addr = 3,
				 .size = 7,
				 .totals = true,
				 .allocated = 137,
				 .walk = MT_WALK_NO_THREAD,
				 .thread = w.autograd_thread });
	r = rows(&w, "cuda", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(n, 3); /* one line in two modules; and the native one */
	assert_string_equal(r[0].module, "enc.lin");
	assert_string_equal(r[0].module_class, "Linear");
	assert_string_equal(r[0].file, "/u/t.py");
	assert_string_equal(r[1].module, "enc");
	assert_null(r[2].file);
	assert_string_equal(r[2].source, "native");
	free(r);
	r = rows(&w, "cuda", BY_MODULE, ROWS_NOW, &n);
	assert_int_equal(n, 3);
	assert_int_equal(rows_sum(r, n), 137);
	assert_null(r[0].file);
	free(r);
	r = rows(&w, "cuda", BY_LAYER, ROWS_NOW, &n);
	assert_int_equal(n, 4); /* "" and enc have 130 each, enc.lin 100, (no module) 7 */
	assert_int_equal(r[0].bytes, 130);
	assert_string_equal(r[0].module, "");
	assert_string_equal(r[0].module_class, "Net");
	assert_int_equal(r[1].bytes, 130);
	assert_string_equal(r[1].module, "enc");
	assert_int_equal(r[2].bytes, 100);
	assert_int_equal(r[3].bytes, 7);
	assert_string_equal(r[3].module_class, "");
	free(r);
	r = rows(&w, "cuda", BY_THREAD, ROWS_NOW, &n);
	assert_int_equal(n, 2);
	assert_string_equal(r[1].thread, "pt_autograd_0");
	assert_int_equal(r[1].tid, 101);
	free(r);
	r = rows(&w, "cuda", BY_PHASE, ROWS_NOW, &n);
	assert_int_equal(n, 2);
	assert_int_equal(r[0].phase, PHASE_FORWARD);
	assert_int_equal(r[1].phase, PHASE_BACKWARD);
	free(r);
	r = rows(&w, "cuda", BY_STACK, ROWS_NOW, &n);
	assert_int_equal(n, 3);
	assert_int_equal(r[0].stack, a);
	free(r);
	assert_int_equal(model__walks(w.m, MT_WALK_OK), 2);
	assert_int_equal(model__walks(w.m, MT_WALK_NO_THREAD), 1);
	assert_int_equal(model__walks(w.m, 99), 0);
	world__free(&w);
}

static void step(struct world *w)
{
	feed(w, (struct event){ .kind = EVENT_STEP });
}

static void test_steps_by_optimizer(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	uint32_t mod = module(&w, "", "Net", "Net");
	struct model_step s;

	alloc(&w, CUDA(0), 1, 100, a); /* 1 */
	/* 2: ignored here */
	feed(&w, (struct event){ .kind = EVENT_CALL, .module = mod });
	step(&w);		       /* 3 */
	alloc(&w, CUDA(0), 2, 900, a); /* 4: the peak, in step 1 */
	dealloc(&w, CUDA(0), 2, 900);  /* 5 */
	step(&w);		       /* 6 */
	alloc(&w, CUDA(0), 3, 1, a);   /* 7 */
	step(&w);		       /* 8 */
	alloc(&w, CUDA(0), 4, 1, a);   /* 9: in an unfinished step */
	model__finish(w.m, w.time);
	assert_int_equal(model__steps(w.m), 3);
	assert_true(model__step(w.m, 0, &s));
	assert_int_equal(s.start, 0);
	assert_int_equal(s.end, 3 * MS);
	assert_int_equal(s.peak, 100);
	assert_true(model__step(w.m, 1, &s));
	assert_int_equal(s.start, 3 * MS);
	assert_int_equal(s.end, 6 * MS);
	assert_int_equal(s.peak, 1000);
	assert_int_equal(s.end_allocated, 100);
	assert_true(model__step(w.m, 2, &s));
	assert_int_equal(s.peak, 101);
	assert_false(model__step(w.m, 3, &s));
	assert_int_equal(model__step_time(w.m), (3 * MS + 2 * MS) / 2);
	assert_int_equal(device(&w, "cuda").peak_step, 1);
	world__free(&w);
}

/* The first step of a window begins with the window. Older recorders wrote the facts last. */
static void test_first_step_of_a_window(void **state)
{
	for (int late = 0; late < 2; late++) {
		struct world w = world__new(AT_PEAK, 0);
		uint32_t a = simple(&w, "/u/a.py", "f", 1);
		struct model_step s;
		uint64_t from;

		w.time = 700 * MS;
		for (int i = 0; i < 2; i++) {
			if (i == late) {
				facts__set(w.f, "window_start_ns", "699000000");
				facts__set(w.f, "window_begins", "step");
			}
			alloc(&w, CUDA(0), 1 + i, 100, a);
			step(&w);
		}
		model__finish(w.m, w.time);
		assert_true(model__window(w.m, &from));
		assert_int_equal(from, 699 * MS);
		assert_true(model__step(w.m, 0, &s));
		assert_int_equal(s.start, 699 * MS);
		assert_int_equal(s.end, 702 * MS);
		assert_true(model__step(w.m, 1, &s));
		assert_int_equal(s.start, 702 * MS);
		assert_int_equal(model__step_time(w.m), (3 * MS + 2 * MS) / 2);
		facts__set(w.f, "window_start_ns", "900000000"); /* no step is shorter than 0 */
		assert_int_equal(model__step_time(w.m), (0 + 2 * MS) / 2);
		world__free(&w);
	}
}

/* The fact of the capture's first step; windows begin later. Facts come from files. */
static void test_job_step(void **state)
{
	static const struct {
		const char *step, *before;
		uint64_t want; /* 0: not known */
	} cases[] = {
		{ "4812", NULL, 4812 },
		{ "4812", "8", 4820 },
		{ "0", NULL, 0 },
		{ "", NULL, 0 },
		{ NULL, "8", 0 },
		{ "-1", NULL, 0 },
		{ "+1", NULL, 0 },
		{ " 1", NULL, 0 },
		{ "0x10", NULL, 0 },
		{ "1e30", NULL, 0 },
		{ "nan", NULL, 0 },
		{ "18446744073709551615", NULL, 0 },
		{ "18446744073709551616", NULL, 0 },
		{ "4812", "", 0 },
		{ "4812", "-8", 0 },
		{ "4812", "18446744073709551615", 0 },
	};
	uint64_t first;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w = world__new(AT_PEAK, 0);

		if (cases[i].step)
			facts__set(w.f, "job_step", cases[i].step);
		if (cases[i].before)
			facts__set(w.f, "window_first_step", cases[i].before);
		assert_false(model__job_step(w.m, &first)); /* no step of an optimizer */
		step(&w);
		first = 0;
		assert_int_equal(model__job_step(w.m, &first), cases[i].want != 0);
		assert_int_equal(cases[i].want ? first : 0, cases[i].want);
		world__free(&w);
	}
}

static void test_steps_by_calls(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t mod = module(&w, "", "Net", "Net"), a = simple(&w, "/u/a.py", "f", 1);
	struct frame_spec in[] = { { "/u/t.py", "main", 0 },
				   { SP "nn/modules/module.py", "_wrapped_call_impl", mod } };
	uint32_t b = stack_of(&w, in, 2, MT_WALK_OK);
	struct model_phase p;
	struct model_step s;

	alloc(&w, CUDA(0), 1, 100, a); /* 1 */
	assert_int_equal(model__steps(w.m), 0);
	assert_int_equal(model__step_time(w.m), 0);
	feed(&w, (struct event){ .kind = EVENT_CALL, .module = mod }); /* 2 */
	alloc(&w, CUDA(0), 2, 50, b);				       /* 3 */
	alloc(&w, CUDA(0), 3, 50, b);				       /* 4 */
	dealloc(&w, CUDA(0), 3, 50);				       /* 5 */
	/* 6: without frames, so the thread's place is unknown */
	feed(&w, (struct event){ .kind = EVENT_ALLOC,
				 .device = CUDA(0),
				 .addr = 9,
				 .size = 1,
				 .totals = true,
				 .allocated = w.allocated[0] += 1,
				 .walk = MT_WALK_FAULT_THREAD });
	assert_int_equal(model__steps(w.m), 0);
	alloc(&w, CUDA(0), 4, 10, a); /* 7: outside of modules */
	assert_int_equal(model__steps(w.m), 1);
	feed(&w, (struct event){ .kind = EVENT_CALL, .module = mod }); /* 8 */
	alloc(&w, CUDA(0), 5, 500, b);				       /* 9 */
	feed(&w, (struct event){ .kind = EVENT_CALL, .module = mod }); /* 10: ends the last call */
	assert_int_equal(model__steps(w.m), 2);
	alloc(&w, CUDA(0), 6, 1, b); /* 11 */
	model__finish(w.m, 20 * MS);
	assert_int_equal(model__steps(w.m), 3);
	assert_true(model__step(w.m, 0, &s));
	assert_int_equal(s.start, 2 * MS);
	assert_int_equal(s.end, 4 * MS);
	assert_int_equal(s.peak, 200);
	assert_true(model__step(w.m, 1, &s));
	assert_int_equal(s.start, 4 * MS);
	assert_int_equal(s.end, 9 * MS);
	assert_int_equal(s.peak, 661);
	assert_true(model__step(w.m, 2, &s));
	assert_int_equal(s.end, 11 * MS);
	assert_int_equal(device(&w, "cuda").peak_step, 2);
	model__phase(w.m, PHASE_FORWARD, &p);
	assert_int_equal(p.count, 3); /* each call has its own */
	world__free(&w);
}

static void test_call_without_a_name(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t mod = module(&w, "", "Net", "Net"), a = simple(&w, "/u/a.py", "f", 1);
	struct frame_spec in[] = { { "/u/t.py", "main", 0 },
				   { SP "nn/modules/module.py", "_wrapped_call_impl", mod } };
	uint32_t b = stack_of(&w, in, 2, MT_WALK_OK);

	feed(&w, (struct event){ .kind = EVENT_CALL });
	alloc(&w, CUDA(0), 2, 50, b);
	assert_int_equal(model__steps(w.m), 0);
	alloc(&w, CUDA(0), 4, 10, a);
	assert_int_equal(model__steps(w.m), 1);
	world__free(&w);
}

static void test_many_steps(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t a = simple(&w, "/u/a.py", "f", 1);
	struct model_step s;

	for (uint64_t i = 0; i < 5000; i++) {
		alloc(&w, CUDA(0), 1, i, a);
		dealloc(&w, CUDA(0), 1, i);
		step(&w);
	}
	assert_int_equal(model__steps(w.m), 5000);
	assert_true(model__step(w.m, 0, &s));
	assert_int_equal(s.peak, 5000 - 4096);
	assert_true(model__step(w.m, 4095, &s));
	assert_int_equal(s.peak, 4999);
	assert_int_equal(s.end, w.time);
	assert_false(model__step(w.m, 4096, &s));
	assert_int_equal(model__step_time(w.m), 3 * MS);
	/* A device that appears later has nothing in earlier steps. */
	alloc(&w, CUDA(1), 1, 50000, a);
	step(&w);
	assert_true(model__step(w.m, 4095, &s));
	assert_int_equal(s.peak, 50000);
	assert_true(model__step(w.m, 4094, &s));
	assert_int_equal(s.peak, 0);
	world__free(&w);
}

static struct model_layer layer(struct world *w, const char *name, const char *root)
{
	struct model_layer l;

	for (size_t i = 0; i < model__layers(w->m); i++) {
		model__layer(w->m, i, &l);
		if (!strcmp(l.name, name) && !strcmp(l.root, root))
			return l;
	}
	fail_msg("no layer '%s' of %s", name, root);
	return (struct model_layer){ 0 };
}

static void test_layers(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t root = module(&w, "", "Net", "Net"),
		 blk = module(&w, "enc.layers.0", "Block", "Net");
	uint32_t l1 = module(&w, "enc.layers.0.l1", "Linear", "Net"),
		 l2 = module(&w, "enc.layers.0.l2", "Linear", "Net");
	uint32_t other = module(&w, "enc", "Encoder", "Disc");
	struct frame_spec in1[] = { { "/u/m.py", "m", root },
				    { "/u/m.py", "b", blk },
				    { "/u/m.py", "l", l1 } };
	struct frame_spec in2[] = { { "/u/m.py", "m", root },
				    { "/u/m.py", "b", blk },
				    { "/u/m.py", "l", l2 } };
	struct frame_spec in3[] = { { "/u/m.py", "d", other } };
	uint32_t a = stack_of(&w, in1, 3, MT_WALK_OK), b = stack_of(&w, in2, 3, MT_WALK_OK);
	uint32_t c = stack_of(&w, in3, 1, MT_WALK_OK), out = simple(&w, "/u/a.py", "f", 1);
	struct model_layer l;

	w.reserved = 1000;
	alloc(&w, CUDA(0), 1, 100, a);	 /* 1: fragmentation 0.9 */
	alloc(&w, CUDA(0), 2, 100, a);	 /* 2: 0.8 */
	alloc(&w, CUDA(0), 3, 300, b);	 /* 3: 0.5 */
	dealloc(&w, CUDA(0), 2, 100);	 /* 4 */
	alloc(&w, CUDA(0), 4, 100, out); /* 5 */
	alloc(&w, CUDA(0), 5, 400, c);	 /* 6 */
	w.reserved = 2000;
	alloc(&w, CUDA(0), 6, 50, a); /* 7 */
	alloc(&w, CUDA(0), 7, 50, a); /* 8 */
	model__finish(w.m, w.time);
	l = layer(&w, "enc.layers.0.l1", "Net");
	assert_string_equal(l.cls, "Linear");
	assert_int_equal(l.all.peak_allocated, 200);
	assert_int_equal(l.all.allocs, 4);
	assert_int_equal(l.all.frees, 1);
	assert_int_equal(l.all.duration, 2 * MS); /* 1..2 and 7..8 */
	assert_int_equal(l.all.peak_reserved, 2000);
	/* average of .9 .8 .525 .5 */
	assert_true(l.all.avg_fragmentation > 0.6812 && l.all.avg_fragmentation < 0.6813);
	l = layer(&w, "enc.layers.0", "Net");
	assert_string_equal(l.cls, "Block");
	assert_int_equal(l.all.peak_allocated, 500);
	assert_int_equal(l.all.allocs, 5);
	assert_int_equal(l.all.frees, 1);
	assert_int_equal(l.all.duration, 3 * MS); /* 1..3 and 7..8 */
	assert_int_equal(layer(&w, "enc.layers", "Net").all.peak_allocated, 500);
	assert_int_equal(layer(&w, "enc", "Net").all.allocs, 5);
	assert_int_equal(layer(&w, "", "Net").all.allocs, 5);
	assert_string_equal(layer(&w, "", "Net").cls, "Net");
	assert_int_equal(layer(&w, "enc", "Disc").all.peak_allocated, 400);
	assert_int_equal(layer(&w, "enc.layers.0.l2", "Net").all.peak_reserved, 1000);
	model__layer(w.m, 999, &l);
	assert_string_equal(l.name, "");
	world__free(&w);
}

/* A module's forward and backward separately: times, bytes and fragmentation. */
static void test_layer_parts(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t mod = module(&w, "fc", "Linear", "Net");
	struct frame_spec fwd[] = { { "/u/t.py", "main", 0 }, { "/u/m.py", "forward", mod } };
	/* Recomputation: backward runs the module's code. */
	struct frame_spec bwd[] = { { SP "autograd/graph.py", "_engine_run_backward", 0 },
				    { "/u/m.py", "forward", mod } };
	uint32_t f = stack_of(&w, fwd, 2, MT_WALK_OK), b = stack_of(&w, bwd, 2, MT_WALK_OK);
	struct model_layer l;

	w.reserved = 1000;
	alloc(&w, CUDA(0), 1, 100, f); /* 1: fragmentation 0.9 */
	alloc(&w, CUDA(0), 2, 100, f); /* 2: 0.8 */
	alloc(&w, CUDA(0), 3, 300, b); /* 3: 0.5 */
	dealloc(&w, CUDA(0), 1, 100);  /* 4 */
	w.reserved = 2000;
	alloc(&w, CUDA(0), 4, 100, b); /* 5: 0.75 */
	dealloc(&w, CUDA(0), 3, 300);  /* 6 */
	dealloc(&w, CUDA(0), 4, 100);  /* 7 */
	alloc(&w, CUDA(0), 5, 10, f);  /* 8 */
	alloc(&w, CUDA(0), 6, 10, f);  /* 9 */
	model__finish(w.m, w.time);
	l = layer(&w, "fc", "Net");
	assert_int_equal(l.all.peak_allocated, 500);
	assert_int_equal(l.all.duration, 8 * MS);
	assert_int_equal(l.all.allocs, 6);
	assert_int_equal(l.forward.peak_allocated, 200);
	assert_int_equal(l.forward.peak_reserved, 2000);
	assert_int_equal(l.forward.allocs, 4);
	assert_int_equal(l.forward.frees, 1);
	assert_int_equal(l.forward.duration, 2 * MS); /* 1..2, 8..9 */
	assert_int_equal(l.backward.peak_allocated, 400);
	assert_int_equal(l.backward.peak_reserved, 2000);
	assert_int_equal(l.backward.allocs, 2);
	assert_int_equal(l.backward.frees, 2);
	assert_int_equal(l.backward.duration, 2 * MS); /* 3..5 */
	/* average of .5 .75 */
	assert_true(l.backward.avg_fragmentation > 0.6249 && l.backward.avg_fragmentation < 0.6251);
	world__free(&w);
}

static void test_odd_module_names(void **state)
{
	static const char *const names[] = { ".", "..", "a.", ".a", "a..b", "." };
	struct world w = world__new(AT_END, 0);
	char deep[600] = "x";
	struct row *r;
	size_t n;

	for (size_t i = 1; i < 599; i++)
		deep[i] = i % 2 ? '.' : 'x';
	for (size_t i = 0; i < N(names) + 1; i++) {
		uint32_t mod = module(&w, i < N(names) ? names[i] : deep, "C", "R");
		struct frame_spec in[] = { { "/u/m.py", "m", mod } };

		alloc(&w, CUDA(0), i, 10, stack_of(&w, in, 1, MT_WALK_OK));
	}
	assert_int_equal(layer(&w, "", "R").all.peak_allocated, 70);
	assert_int_equal(layer(&w, "a", "R").all.peak_allocated, 20);
	assert_int_equal(layer(&w, deep, "R").all.peak_allocated, 10);
	for (size_t i = 0; i < N(names) + 1; i++)
		dealloc(&w, CUDA(0), i, 10);
	assert_int_equal(layer(&w, "", "R").all.frees, 7);
	r = rows(&w, "cuda", BY_LAYER, ROWS_TOTAL, &n);
	assert_true(n > 30 && n < 50);
	free(r);
	world__free(&w);
}

static void test_phase_stretches(void **state)
{
	struct world w = world__new(AT_PEAK, 0);
	uint32_t mod = module(&w, "", "Net", "Net"), o = simple(&w, "/u/a.py", "f", 1);
	struct frame_spec in[] = { { "/u/t.py", "main", 0 },
				   { SP "nn/modules/module.py", "_wrapped_call_impl", mod } };
	uint32_t f = stack_of(&w, in, 2, MT_WALK_OK);
	struct model_phase p;

	w.reserved = 4096;
	alloc(&w, CUDA(0), 1, 100, f); /* 1 */
	alloc(&w, CUDA(0), 2, 100, f); /* 2 */
	dealloc(&w, CUDA(0), 1, 100);  /* 3: still in the forward */
	alloc(&w, CUDA(0), 3, 5, o);   /* 4 */
	alloc(&w, CUDA(0), 4, 50, f);  /* 5 */
	dealloc(&w, CUDA(0), 3, 5);    /* 6 */
	model__phase(w.m, PHASE_FORWARD, &p);
	assert_int_equal(p.count, 2);
	assert_int_equal(p.duration, 3 * MS); /* 1..3, 5..6 */
	assert_int_equal(p.allocated_delta, 100 + 45);
	assert_int_equal(p.peak_allocated, 200);
	assert_int_equal(p.peak_time, 2 * MS);
	assert_int_equal(p.peak_reserved, 4096);
	model__phase(w.m, PHASE_OTHER, &p);
	assert_int_equal(p.count, 1);
	assert_int_equal(p.allocated_delta, 5);
	model__phase(w.m, PHASE_BACKWARD, &p);
	assert_int_equal(p.count, 0);
	world__free(&w);
}

static void alloc_in(struct world *w, uint64_t addr, uint64_t size, uint32_t stack, uint8_t walk,
		     uint32_t node, uint32_t thread)
{
	feed(w, (struct event){ .kind = EVENT_ALLOC,
				.device = CPU,
				.addr = addr,
				.size = size,
				.stack = stack,
				.walk = walk,
				.node = node,
				.thread = thread });
}

static const struct row *of_bytes(const struct row *r, size_t n, uint64_t bytes)
{
	for (size_t i = 0; i < n; i++)
		if (r[i].bytes == bytes)
			return &r[i];
	fail_msg("no row of %u bytes", (unsigned int)bytes);
	return NULL;
}

/* Autograd's allocations belong to the line and module of forward, unless Python code ran in
 * the node. */
static void test_autograd(void **state)
{
	struct world w = world__new(AT_END, 0);
	uint32_t fc = module(&w, "fc", "Linear", "Net"), act = module(&w, "act", "GELU", "Net");
	struct frame_spec fwd[] = { { "/u/net.py", "main", 0 },
				    { SP "nn/modules/module.py", "_wrapped_call_impl", fc },
				    { SP "nn/modules/linear.py", "Linear.forward", 0 } };
	struct frame_spec engine[] = { { "/u/t.py", "<module>", 0 },
				       { SP "_tensor.py", "Tensor.backward", 0 },
				       { SP "autograd/graph.py", "_engine_run_backward", 0 } };
	struct frame_spec engine_old[] = { { "/u/t.py", "<module>", 0 },
					   { SP "autograd/__init__.py", "backward", 0 } };
	struct frame_spec custom[] = { { "/u/t.py", "<module>", 0 },
				       { SP "autograd/graph.py", "_engine_run_backward", 0 },
				       { SP "autograd/function.py", "BackwardCFunction.apply", 0 },
				       { "/u/f.py", "MyFn.backward", 0 } };
	struct frame_spec recompute[] = { { "/u/t.py", "<module>", 0 },
					  { SP "autograd/graph.py", "_engine_run_backward", 0 },
					  { SP "utils/checkpoint.py", "unpack_hook", 0 },
					  { SP "nn/modules/module.py", "_call_impl", act } };
	uint32_t f = stack_of(&w, fwd, N(fwd), MT_WALK_OK),
		 e = stack_of(&w, engine, N(engine), MT_WALK_OK);
	uint32_t old = stack_of(&w, engine_old, N(engine_old), MT_WALK_OK),
		 c = stack_of(&w, custom, N(custom), MT_WALK_OK);
	uint32_t addmm = dict__node(w.d, (struct dict_node){ .cls = str(&w, "AddmmBackward0"),
							     .stack = f });
	uint32_t view = dict__node(w.d, (struct dict_node){ .cls = str(&w, "AsStridedBackward0") });
	uint32_t l = stack_of(&w, recompute, N(recompute), MT_WALK_OK);
	uint32_t clone = dict__node(w.d, (struct dict_node){ str(&w, "AccumulateGrad"), f,
							     str(&w, "act.weight"), act });
	uint32_t param = dict__node(w.d, (struct dict_node){ str(&w, "AccumulateGrad"), 0,
							     str(&w, "act.weight"), act });
	const struct row *row;
	struct row *r;
	struct row_frame line;
	size_t n;

	alloc_in(&w, 0x1000, 1, f, MT_WALK_OK, 0, 0); /* forward itself */
	alloc_in(&w, 0x2000, 10, e, MT_WALK_OK, addmm, 0);
	alloc_in(&w, 0x3000, 20, 0, MT_WALK_NO_FRAME, addmm, w.autograd_thread);
	alloc_in(&w, 0x4000, 40, old, MT_WALK_OK, addmm, 0);
	alloc_in(&w, 0x5000, 100, c, MT_WALK_OK, addmm, 0); /* Python code ran in the node */
	alloc_in(&w, 0x6000, 200, e, MT_WALK_OK, view, 0);  /* the node's line is unknown */
	alloc_in(&w, 0x7000, 300, 0, MT_WALK_NO_FRAME, view, w.autograd_thread);
	alloc_in(&w, 0x8000, 400, e, MT_WALK_OK, param, 0);
	/* Python code may have run */
	alloc_in(&w, 0x9000, 500, 0, MT_WALK_FAULT_THREAD, addmm, 0);
	alloc_in(&w, 0xc000, 1000, l, MT_WALK_OK, addmm, 0); /* only a library's Python code ran */
	alloc_in(&w, 0xd000, 2000, 0, MT_WALK_NO_FRAME, clone, w.autograd_thread);
	alloc_in(&w, 0xa000, 600, e, MT_WALK_OK, 0, 0);	    /* between nodes */
	alloc_in(&w, 0xb000, 700, e, MT_WALK_OK, 12345, 0); /* the node is not in the dictionary */
	r = rows(&w, "cpu", BY_LINE, ROWS_NOW, &n);
	assert_int_equal(rows_sum(r, n), 1 + 70 + 100 + 200 + 300 + 400 + 500 + 600 + 700 + 3000);
	row = of_bytes(r, n, 70);
	assert_string_equal(row->file, "/u/net.py");
	assert_string_equal(row->func, "main");
	assert_string_equal(row->module, "fc");
	assert_int_equal(row->phase, PHASE_BACKWARD);
	assert_string_equal(row->source, "autograd");
	assert_string_equal(row->node_class, "AddmmBackward0");
	row = of_bytes(r, n, 3000); /* the module is the recomputed one, and the parameter's */
	assert_string_equal(row->file, "/u/net.py");
	assert_string_equal(row->module, "act");
	assert_string_equal(row->source, "autograd");
	row = of_bytes(r, n, 1);
	assert_string_equal(row->file, "/u/net.py");
	assert_int_equal(row->phase, PHASE_FORWARD);
	assert_string_equal(row->source, "frame");
	assert_null(row->node_class);
	row = of_bytes(r, n, 100);
	assert_string_equal(row->file, "/u/f.py");
	assert_int_equal(row->phase, PHASE_BACKWARD);
	assert_string_equal(row->source, "frame");
	assert_string_equal(row->node_class, "AddmmBackward0");
	assert_string_equal(row->module, "fc"); /* the module of the node */
	row = of_bytes(r, n, 200 + 600 + 700);
	assert_string_equal(row->file, "/u/t.py");
	assert_int_equal(row->phase, PHASE_BACKWARD);
	assert_string_equal(row->source, "frame");
	row = of_bytes(r, n, 300 + 500);
	assert_null(row->file);
	assert_string_equal(row->source, "untraced");
	assert_int_equal(row->phase, PHASE_BACKWARD);
	row = of_bytes(r, n, 400);
	assert_string_equal(row->file, "/u/t.py");
	assert_string_equal(row->module, "act");
	free(r);
	/* as exports of events have them */
	assert_true(model__event_line(
		w.m, &(struct event){ .kind = EVENT_ALLOC, .stack = l, .node = addmm }, &line));
	assert_string_equal(line.file, "/u/net.py");
	assert_true(model__event_line(
		w.m, &(struct event){ .kind = EVENT_ALLOC, .stack = c, .node = addmm }, &line));
	assert_string_equal(line.file, "/u/f.py");
	r = rows(&w, "cpu", BY_STACK, ROWS_NOW, &n);
	assert_true(row__has_leaf(of_bytes(r, n, 70)));
	assert_false(row__has_leaf(of_bytes(r, n, 1)));
	assert_false(row__has_leaf(of_bytes(r, n, 100)));
	assert_true(row__has_leaf(of_bytes(r, n, 300)));
	assert_string_equal(of_bytes(r, n, 300)->node_class, "AsStridedBackward0");
	assert_int_equal(of_bytes(r, n, 70)->stack, f);
	free(r);
	r = rows(&w, "cpu", BY_MODULE, ROWS_NOW, &n);
	assert_string_equal(of_bytes(r, n, 171)->module, "fc");
	free(r);
	/* Outcomes of walks are unchanged. */
	assert_int_equal(model__walks(w.m, MT_WALK_NO_FRAME), 3);
	assert_int_equal(model__walks(w.m, MT_WALK_FAULT_THREAD), 1);
	/* The same holds for all events like an allocation. */
	struct event charged = { .kind = EVENT_OOM, .stack = e, .node = addmm };

	model__charge(w.m, &charged);
	assert_int_equal(charged.stack, f);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_phases),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_linked_without_lines),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_compiled_libraries),
		cmocka_unit_test(test_generated_code),
		cmocka_unit_test(test_autograd),
		cmocka_unit_test(test_steps_by_optimizer),
		cmocka_unit_test(test_first_step_of_a_window),
		cmocka_unit_test(test_job_step),
		cmocka_unit_test(test_steps_by_calls),
		cmocka_unit_test(test_call_without_a_name),
		cmocka_unit_test(test_many_steps),
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_layer_parts),
		cmocka_unit_test(test_odd_module_names),
		cmocka_unit_test(test_phase_stretches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
