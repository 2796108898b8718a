// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
//! As causes.c, in Rust: a vector that only grows.
use std::io::{self, BufRead};

#[inline(never)]
fn take(kept: &mut Vec<Vec<u8>>, mib: usize) {
    for _ in 0..mib * 64 {
        kept.push(vec![1u8; 16000]); // LEAK: rust
    }
}

fn main() {
    let mib = std::env::args().nth(2).unwrap().parse().unwrap();
    let mut kept = Vec::new();
    let mut lines = io::stdin().lock().lines();
    println!("ready");
    if lines.next().is_none() {
        return;
    }
    take(&mut kept, mib);
    println!("grown");
    lines.next();
    println!("{}", kept.len());
}
