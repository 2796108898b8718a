/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The hooks: functions of PyTorch and the interpreter that are probed. One entry for each, from
 * which come enum hook_id, enum mt_inside_program and each table of hooks.
 *
 *     X(ID, program, twin, record, off, name)
 *
 * program: its program in memtrace.bpf.c. twin: 1 if program_s, which may wait for pages, exists; a
 * program that reads no memory of the target needs none. record: enum mt_rec_type of its hits. off:
 * the bit of mt_detail.off that drops it, or 0. name: for messages.
 */
#define MT_HOOKS(X)                                                                                \
	/* c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device), libc10 */     \
	X(REPORT, report, 1, MT_REC_REPORT, 0, "report")                                           \
	/* c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device), libc10,              \
	 * torch >= 1.13 */                                                                        \
	X(OOM, oom, 1, MT_REC_OOM, 0, "out of memory")                                             \
	/* c10::ProfiledCPUMemoryReporter::New(void*, size_t), libc10 */                           \
	X(CPU_NEW, cpu_new, 1, MT_REC_CPU_NEW, 0, "cpu new")                                       \
	/* c10::ProfiledCPUMemoryReporter::Delete(void*), libc10 */                                \
	X(CPU_DELETE, cpu_delete, 0, MT_REC_CPU_DELETE, 0, "cpu delete")                           \
	/* torch::autograd::impl::set_gradient_edge(const Variable&, Edge), libtorch_cpu */        \
	X(EDGE, edge, 1, MT_REC_EDGE, MT_OFF_NODES, "autograd edge")                               \
	/* torch::autograd::Engine::evaluate_function(shared_ptr<GraphTask>&, Node*, ...),         \
	 * libtorch_cpu. A record only where the running node has changed */                       \
	X(EVALUATE, evaluate, 0, MT_REC_NODE, MT_OFF_NODES, "autograd node")                       \
	/* end of a record_function scope, libtorch_python; see torch.h */                         \
	X(SCOPE_END, scope_end, 1, MT_REC_SCOPE_END, 0, "scope end")                               \
	/* torch::autograd::profiler::record_function_enter_new(const std::string &,               \
	 * const std::optional<std::string> &), libtorch_cpu: a record_function scope begins */    \
	X(SCOPE_BEGIN, scope_begin, 0, MT_REC_SCOPE, MT_OFF_SCOPES, "scope begin")                 \
	/* nvtxRangePop() and nvtxRangePushA(const char *), as torch.cuda.nvtx calls them; see     \
	 * torch.h */                                                                              \
	X(RANGE_POP, range_pop, 0, MT_REC_SCOPE, MT_OFF_SCOPES, "NVTX pop")                        \
	X(RANGE_PUSH, range_push, 0, MT_REC_SCOPE, MT_OFF_SCOPES, "NVTX push")                     \
	/* PyCode_Type.tp_dealloc, in the interpreter: a code object is freed */                   \
	X(CODE_GONE, code_gone, 0, MT_REC_CODE_GONE, 0, "code gone")                               \
	/* slot_tp_call, in the interpreter */                                                     \
	X(MODULE_CALL, module_call, 0, MT_REC_MODULE_CALL, MT_OFF_MODULES, "module call")          \
	/* first call of Module._call_impl, libtorch_python; torch.h */                            \
	X(MODULE_BOUND, module_bound, 0, MT_REC_MODULE_CALL, MT_OFF_MODULES, "bound call")

/*
 * The hooks of PyTorch's allocators, which every capture attaches, in this order: frees before
 * allocations, so that no free of a recorded block is missed. Out of memory comes last: its record
 * carries totals, and all events after it must be recorded.
 */
#define MT_ALLOCATOR_HOOKS(X) X(CPU_DELETE) X(CPU_NEW) X(REPORT) X(OOM)
