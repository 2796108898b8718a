// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The layout of a flame graph, shared by all pages: the tree of stacks, search, rectangles, and moves by keyboard. The
// pages draw it. Nodes are numbers, 0 is the root, and parents precede their children.
"use strict";
class Flames {
	// frames: { name, file, line, kind }. row: height of a rectangle. thin: narrower rectangles are combined. In pixels.
	constructor(frames, row, thin) {
		this.frames = frames;
		this.row = row;
		this.thin = thin;
		this.options = { hideTorch: true, leafFirst: false, icicle: true };
		this.title = ""; // name of the root
		this.zoom = 0; // node shown in full width
		this.at = 0; // node with the keyboard focus
		this.values = null; // width of each node: what sum() returned
		this.hits = null; // during a search: whether each frame matches
		// { n, x, y, w, depth }, above: outside of the zoomed node, or more, rest: number and size of n's combined children.
		this.drawn = [];
	}

	static location(f) {
		return f.file ? f.file + (f.line ? ":" + f.line : "") : "";
	}
	static base(f) {
		return Flames.location(f).replace(/.*\//s, "");
	}

	// ---- tree

	shape(stack) {
		if (this.options.hideTorch) {
			const kept = stack.filter(f => this.frames[f].kind !== "torch");
			// A stack with only PyTorch frames keeps its innermost frame.
			stack = kept.length ? kept : stack.slice(-1);
		}
		return this.options.leafFirst ? stack.reverse() : stack;
	}

	// Makes the tree under the current options. keys: the stack of each row. stackOf(key): a new array of its frames,
	// outermost first. The zoomed and the focused node stay those with the same path.
	build(keys, stackOf) {
		const paths = [this.zoom, this.at].map(n => this.path(n));
		const parent = [-1], frame = [-1], depth = [0], kids = new Map(), leaf = new Map();
		this.leaves = Int32Array.from(keys, key => {
			let n = leaf.get(key);
			if (n !== undefined)
				return n;
			n = 0;
			for (const f of this.shape(stackOf(key))) {
				const id = n * 0x200000 + f;
				let child = kids.get(id);
				if (child === undefined) {
					child = parent.length;
					kids.set(id, child);
					parent.push(n);
					frame.push(f);
					depth.push(depth[n] + 1);
				}
				n = child;
			}
			leaf.set(key, n);
			return n;
		});
		const n = parent.length;
		// Children of node i are list[first[i]] to list[first[i + 1] - 1].
		const first = new Int32Array(n + 1), list = new Int32Array(n - 1);
		for (let i = 1; i < n; i++)
			first[parent[i] + 1]++;
		for (let i = 0; i < n; i++)
			first[i + 1] += first[i];
		const next = first.slice();
		for (let i = 1; i < n; i++)
			list[next[parent[i]]++] = i;
		Object.assign(this, { parent, frame, depth, first, list });
		[this.zoom, this.at] = paths.map(path => this.find(path));
	}

	path(n) {
		const out = [];
		for (; n > 0; n = this.parent[n])
			out.unshift(this.frame[n]);
		return out;
	}

	// The node with this path, or the innermost node of it that is there.
	find(path) {
		let n = 0;
		for (const f of path) {
			const c = this.list.subarray(this.first[n], this.first[n + 1]).find(k => this.frame[k] === f);
			if (c === undefined)
				break;
			n = c;
		}
		return n;
	}

	// Adds up a figure of each row at its node and at those around it.
	sum(figures) {
		const out = new Float64Array(this.parent.length);
		figures.forEach((v, i) => { out[this.leaves[i]] += v; });
		for (let i = out.length - 1; i > 0; i--)
			out[this.parent[i]] += out[i];
		return out;
	}

	children(n) {
		return this.list.subarray(this.first[n], this.first[n + 1]).filter(c => this.values[c] > 0)
			.sort((a, b) => this.values[b] - this.values[a] || this.frame[a] - this.frame[b]);
	}

	frameOf(n) {
		return n ? this.frames[this.frame[n]] : null;
	}
	name(n) {
		return n ? this.frameOf(n).name : this.title;
	}

	// A submodule is shown without its parent's name: .attn in blocks.0, not blocks.0.attn. Tight: without its class.
	short(n, tight = false) {
		let all = this.name(n);
		if (this.frameOf(n)?.kind !== "module")
			return all;
		if (tight)
			all = all.split(" (")[0];
		if (this.options.leafFirst)
			return all;
		for (let up = this.parent[n]; up; up = this.parent[up])
			if (this.frameOf(up).kind === "module") {
				const outer = this.name(up).split(" (")[0] + ".";
				return all.startsWith(outer) ? all.slice(outer.length - 1) : all;
			}
		return all;
	}

	// ---- search

	search(query) {
		const q = query.trim().toLowerCase();
		this.hits = q ? this.frames.map(f => (f.name + "\n" + Flames.location(f)).toLowerCase().includes(q)) : null;
	}
	hit(n) {
		return n > 0 && this.hits !== null && this.hits[this.frame[n]];
	}

	// Size of the stacks in the zoomed node that contain a match.
	matched() {
		for (let up = this.zoom; up; up = this.parent[up])
			if (this.hit(up))
				return this.values[this.zoom];
		const open = new Uint8Array(this.parent.length); // nodes in the zoomed one with no match at or above them
		let sum = 0;
		open[this.zoom] = 1;
		for (let i = this.zoom + 1; i < open.length; i++)
			if (open[this.parent[i]] && this.hit(i))
				sum += this.values[i];
			else
				open[i] = open[this.parent[i]];
		return sum;
	}

	// ---- rectangles

	// Fills drawn, outer rectangles before inner ones, and returns the height.
	layout(width) {
		const out = [], todo = [[this.zoom, 0]], scale = this.values[this.zoom] ? width / this.values[this.zoom] : 0;
		for (let n = this.zoom; n; n = this.parent[n])
			out.unshift({ n: this.parent[n], x: 0, w: width, depth: this.depth[n] - 1, above: true });
		while (todo.length) {
			const [n, left] = todo.pop(), kids = this.children(n), depth = this.depth[n];
			out.push({ n, x: left, w: this.values[n] * scale, depth });
			let x = left, i = 0, rest = 0;
			for (; i < kids.length && this.values[kids[i]] * scale >= this.thin; i++) {
				todo.push([kids[i], x]);
				x += this.values[kids[i]] * scale;
			}
			for (let k = i; k < kids.length; k++)
				rest += this.values[kids[k]];
			if (rest * scale >= 1)
				out.push({ n, x, w: rest * scale, depth: depth + 1, more: kids.length - i, rest });
		}
		const depths = out.reduce((most, o) => Math.max(most, o.depth + 1), 1);
		for (const o of out)
			o.y = (this.options.icicle ? o.depth : depths - 1 - o.depth) * this.row;
		this.drawn = out;
		return depths * this.row;
	}

	rectangle(n) {
		return this.drawn.find(o => o.n === n && !o.more);
	}

	// Moves the focus by an arrow key or Home. Returns the rectangle it is on now, undefined if there is none that way.
	step(key) {
		const here = this.rectangle(this.at) ?? this.rectangle(this.zoom);
		const [inward, outward] = this.options.icicle ? ["ArrowDown", "ArrowUp"] : ["ArrowUp", "ArrowDown"];
		let next;
		if (key === inward)
			next = here.above ? this.drawn[this.drawn.indexOf(here) + 1] : this.rectangle(this.children(here.n)[0]);
		else if (key === outward)
			next = this.rectangle(this.parent[here.n]);
		else if (key === "Home")
			next = this.drawn[0];
		else {
			const row = this.drawn.filter(o => !o.more && o.depth === here.depth).sort((a, b) => a.x - b.x);
			next = row[row.indexOf(here) + (key === "ArrowRight" ? 1 : -1)];
		}
		if (next)
			this.at = next.n;
		return next;
	}
}
