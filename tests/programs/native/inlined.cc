// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Calls snapshot() from C++: namespaces, templates, a lambda, and functions that are inlined.
#include <unistd.h>

#include <utility>

#include "snapshot.h"

namespace pool
{
template <typename T> class Block
{
      public:
	explicit Block(int n) : size(n)
	{
	}
	__attribute__((noinline)) int take(const T &more) const
	{
		return deeper(static_cast<int>(more)) + size; // the line of take
	}

      private:
	__attribute__((always_inline)) int deeper(int n) const
	{
		return deepest(n) + 1; // the line of deeper
	}
	__attribute__((always_inline)) static int deepest(int n)
	{
		return snapshot(n) + 1; // the line of deepest
	}
	int size;
};
} // namespace pool

namespace
{
__attribute__((noinline)) int hidden(const pool::Block<long> &b, int n)
{
	return b.take(n) + 1; // the line of hidden
}
} // namespace

int main(int argc, char **)
{
	pool::Block<long> b(argc);
	auto call = [&b](int n) __attribute__((noinline))
	{
		return hidden(b, n) + 1;
	};

	if (call(argc) < 0)
		return 1;
	pause();
	return 0;
}
