/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* PyTorch's probed functions with the real names and arguments: see hooks.cc. */
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hooks
{

struct thrown {
	uint64_t words; /* arguments of the call that threw (odd ones throw) */
};

/* The value that a call adds to hooks_sum(), or throws. */
inline uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	uint64_t h = a * 0x9e3779b97f4a7c15;

	h = (h ^ b) * 0xbf58476d1ce4e5b9;
	h = (h ^ c) * 0x94d049bb133111eb;
	return (h ^ d) * 0x2545f4914f6cdd1d;
}

} // namespace hooks

namespace c10
{

struct Device {
	int8_t type, index;
};

void reportMemoryUsageToProfiler(void *ptr, int64_t size, size_t allocated, size_t reserved,
				 Device device);

} // namespace c10

namespace at
{

class Tensor
{
      public:
	uint64_t number = 0;
};

} // namespace at

namespace torch::autograd
{

struct GraphTask;
struct ReadyQueue;

struct InputBuffer {
	uint64_t number = 0;
};

/* Same first members as the real class: vtable, sequence number, thread. */
struct Node {
	virtual ~Node() = default;
	virtual void run(InputBuffer &)
	{
	}

	uint64_t owners[2] = {}, number = 0, thread = 0, rest[8] = {};
};

struct Edge {
	std::shared_ptr<Node> function;
	uint32_t input_nr = 0;
};

struct Engine {
	void evaluate_function(std::shared_ptr<GraphTask> &task, Node *func, InputBuffer &inputs,
			       const std::shared_ptr<ReadyQueue> &queue);
};

} // namespace torch::autograd
