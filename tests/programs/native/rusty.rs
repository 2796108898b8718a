// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Calls snapshot() from Rust: a method, a closure and an inlined function.
use std::os::raw::c_int;

extern "C" {
    fn snapshot(depth: c_int) -> c_int;
    fn pause() -> c_int;
}

struct Pool {
    size: i32,
}

impl Pool {
    #[inline(never)]
    fn take(&self, n: i32) -> i32 {
        deeper(n) + self.size // the line of take
    }
}

#[inline(always)]
fn deeper(n: i32) -> i32 {
    unsafe { snapshot(n) + 1 } // the line of deeper
}

fn main() {
    let pool = Pool { size: std::env::args().count() as i32 };
    if pool.take(pool.size) < 0 {
        std::process::exit(1);
    }
    unsafe { pause() };
}
