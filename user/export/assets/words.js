// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Number formats shared by all pages, and descriptions of frames without a line.
"use strict";
const Words = (() => {
	const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

	function bytes(n) {
		if (n < 0)
			return "\u2212" + bytes(-n);
		if (n < 1024)
			return n + " B";
		let i = -1;
		do {
			n /= 1024;
			i++;
		} while (n >= 1023.995 && i < UNITS.length - 1);
		return n.toFixed(i === 0 || n >= 1000 ? 1 : 2) + " " + UNITS[i];
	}

	const number = new Intl.NumberFormat("en-US");
	const count = n => number.format(n);
	const blocks = n => n ? count(n) + (n === 1 ? " block" : " blocks") : "";

	function percent(part, whole) {
		const p = whole ? 100 * part / whole : 0;
		return (p > 0 && p < 0.01 ? "<0.01" : p.toFixed(p < 10 ? 2 : 1)) + " %";
	}

	function seconds(s) {
		if (s < 120)
			return s.toFixed(s < 10 ? 2 : 1) + " s";
		const m = Math.floor(s / 60);
		return m < 60 ? m + " min " + Math.round(s % 60) + " s" : Math.floor(m / 60) + " h " + (m % 60) + " min";
	}

	// The command line of a recording: { facts, name }.
	function command({ facts, name }) {
		let words = null;
		try {
			words = JSON.parse(facts.cmdline);
		} catch {
			// not JSON: use the text
		}
		return Array.isArray(words) ? words.join(" ") : facts.cmdline ?? facts.comm ?? name;
	}

	const NOTES = {
		"[before attach]": "Was there when tracing began; sized from the allocator’s own totals.",
		"[backward, no Python frame]": "Allocated by the autograd engine on a thread that has no Python frames.",
		"[native thread]": "Allocated on a thread that runs no Python.",
		"[stack unreadable]": "The Python frames could not be read at that moment.",
		"[Python stacks not read]": "Python stacks were not read in this capture.",
		"[outer frames cut off]": "The stack is deeper than what is recorded of one; its outermost frames are missing.",
		"[outer frames unreadable]": "The outermost frames of this stack could not be read at that moment.",
		"[frame without a name]": "The code object of this frame was gone before its name could be read.",
		"[smaller stacks]": "Stacks too small and too many to be shown one by one.",
	};

	return { bytes, count, blocks, percent, seconds, command, NOTES };
})();
