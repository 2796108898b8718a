// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The tree of modules: own bytes and bytes including submodules. Also serves as text for screen readers.
"use strict";
(() => {
	const { state, el } = Page;
	const { bytes, count } = Words;
	let box = null, list, says, nodes = null, most = 1, seen = [], open_ = null, leaves;

	// Nodes by dotted name, parents first. The node "no module" is next to the root.
	function build() {
		const by = new Map();
		nodes = [];
		const get = (key, label, parent) => {
			let n = by.get(key);
			if (n === undefined) {
				n = nodes.length;
				by.set(key, n);
				nodes.push({ label, parent, depth: parent < 0 ? 0 : nodes[parent].depth + 1, cls: "", name: key.slice(1), kids: [] });
				if (parent >= 0)
					nodes[parent].kids.push(n);
			}
			return n;
		};
		leaves = Int32Array.from(Page.rows, r => {
			if (!r.module && !r.module_class)
				return get("!", "(no module)", -1);
			let n = get("m", "", -1), name = "";
			if (r.module)
				for (const part of r.module.split(".")) {
					name += (name ? "." : "") + part;
					n = get("m" + name, part, n);
				}
			nodes[n].cls ||= r.module_class ?? "";
			return n;
		});
		if (!open_) {
			open_ = new Set(nodes.map((n, i) => n.depth < 2 ? i : -1));
		}
	}

	function weigh() {
		const f = Page.figures();
		for (const n of nodes) {
			n.own = n.all = n.count = 0;
			n.by = {};
		}
		f.bytes.forEach((b, i) => {
			if (!b && !f.count[i])
				return;
			const n = nodes[leaves[i]], c = Page.rows[i].category;
			n.own += b;
			n.all += b;
			n.count += f.count[i];
			n.by[c] = (n.by[c] ?? 0) + b;
		});
		for (let i = nodes.length - 1; i >= 0; i--) {
			const n = nodes[i], p = nodes[n.parent];
			if (!p)
				continue;
			p.all += n.all;
			p.count += n.count;
			for (const [c, b] of Object.entries(n.by))
				p.by[c] = (p.by[c] ?? 0) + b;
		}
	}

	function order() {
		seen = [];
		most = Math.max(1, ...nodes.filter(x => x.parent < 0).map(x => Math.abs(x.all)));
		const go = i => {
			const n = nodes[i];
			if (!n.all && !n.count)
				return;
			seen.push(i);
			if (open_.has(i))
				[...n.kids].sort((a, b) => Math.abs(nodes[b].all) - Math.abs(nodes[a].all)).forEach(go);
		};
		nodes.map((n, i) => i).filter(i => nodes[i].parent < 0).sort((a, b) => nodes[b].all - nodes[a].all).forEach(go);
	}

	const make = () => el("div", { role: "row" }, el("span", { role: "gridcell", className: "c-tree" }, el("i", { className: "fold" }), el("span"), el("small")),
		el("span", { role: "gridcell", className: "c-size" }), el("span", { role: "gridcell", className: "c-size quiet" }), el("span", { role: "gridcell", className: "c-mix" }, el("i")));

	function fill(e, i) {
		const id = seen[i], n = nodes[id], isOpen = open_.has(id), [tree, all, own, mix] = e.children, kids = n.kids.some(k => nodes[k].all || nodes[k].count);
		const look = `${id} ${kids} ${isOpen}`;
		if (e.dataset.look !== look) {
			e.dataset.look = look;
			e.setAttribute("aria-level", n.depth + 1);
			if (kids)
				e.setAttribute("aria-expanded", isOpen);
			else
				e.removeAttribute("aria-expanded");
			tree.style.paddingLeft = n.depth * 14 + 4 + "px";
			tree.children[0].textContent = kids ? isOpen ? "▾" : "▸" : "";
			tree.children[1].textContent = n.label || (n.cls ? n.cls + " (model)" : "(model)");
			tree.children[2].textContent = n.label && n.cls ? ` (${n.cls})` : "";
			tree.title = [n.name, calls(n.name)].filter(Boolean).join("\n");
		}
		all.textContent = bytes(n.all);
		own.textContent = n.own ? bytes(n.own) : "";
		bar(mix, n);
	}

	// Figures of a module over the whole recording: time and largest bytes.
	let layers = null;
	function calls(name) {
		layers ??= new Map((Page.data.layers ?? []).map(l => [l.name, l]));
		const l = layers.get(name);
		return l && (l.calls ? `${count(l.calls)} calls, ${Words.seconds(l.duration_ms / 1000)}; ` : "") + `peak of ${bytes(l.peak_allocated)} in it`;
	}

	// A bar with a part for each category.
	function bar(mix, n) {
		const stops = [], said = [];
		let from = 0, sum = 0;
		const there = (Page.head.categories ?? []).filter(c => n.by[c] > 0);
		for (const c of there)
			sum += n.by[c];
		for (const c of there) {
			const to = from + n.by[c] / sum * 100;
			stops.push(`${Page.categoryColour(c)} ${from}% ${to}%`);
			said.push(Words.role(c) + ": " + bytes(n.by[c]));
			from = to;
		}
		mix.firstChild.style.width = 100 * Math.min(1, sum / most) + "%";
		mix.firstChild.style.background = stops.length ? `linear-gradient(to right, ${stops.join(", ")})` : "";
		mix.title = said.join("\n");
	}

	function use(i, e) {
		const n = nodes[seen[i]];
		if (e.type === "click" && e.target.closest(".c-tree") && n.kids.length) {
			toggle(seen[i]);
			return;
		}
		Page.find([Page.filter.term("module", n.name)]);
	}

	function toggle(id, to = !open_.has(id)) {
		if (to)
			open_.add(id);
		else
			open_.delete(id);
		order();
		list.update(seen.length);
	}

	function keys(e, at) {
		const id = seen[at];
		if (e.key === "ArrowRight")
			toggle(id, true);
		else if (e.key === "ArrowLeft" && open_.has(id) && nodes[id].kids.length)
			toggle(id, false);
		else if (e.key === "ArrowLeft")
			list.mark(Math.max(0, seen.indexOf(nodes[id].parent)));
		else
			return false;
		return true;
	}

	function renew() {
		if (!state.ready || !box)
			return;
		if (!nodes)
			build();
		weigh();
		order();
		list.update(seen.length);
		says.textContent = `${count(nodes.length)} modules. Sizes are those of the selection. Enter filters to a module.`;
	}

	function open(where) {
		box = where;
		says = el("output", { className: "quiet says" });
		const grid = el("div", { id: "modules", className: "fill", tabIndex: 0, role: "treegrid", "aria-label": "Modules" });
		box.replaceChildren(says, grid);
		list = Page.list(grid, { make, fill, use, keys });
		list.reset(el("div", { className: "row-head", role: "row" }, ...[["c-tree", "Module"], ["c-size", "With submodules"], ["c-size", "Own"], ["c-mix", "By role"]]
			.map(([c, t]) => el("span", { className: c, role: "columnheader", textContent: t }))));
		renew();
	}

	Page.views.modules = { title: "Modules", open, renew, close: () => { box = null; }, here: () => !Page.onHost(), rows: () => seen.map(i => nodes[i]) };
})();
