// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Extension of flamegraph.js for two recordings: data.diff, and an old and a new size for each stack.
"use strict";
const Change = (() => {
	const { bytes, count, percent, seconds, command } = Words, { el } = Dom;
	const ROWS = 200; // rows of the table; the others are combined

	// Each view becomes three: widths from the larger size, the old size and the new size.
	function expand(data) {
		for (const d of data.devices)
			d.views = d.views.flatMap(v => {
				const none = v.node.map(() => 0);
				const make = (id, label, sizes) => ({ ...v, id, label, bytes: sizes, count: none });
				return [make("both", "Both", v.old.map((o, i) => Math.max(o, v.new[i]))), make("old", "Old", v.old), make("new", "New", v.new)];
			});
	}

	const signed = n => (n > 0 ? "+" : "") + bytes(n);

	// Colour by the changed share of the larger size.
	function colour(old, now) {
		if (old === now)
			return "same";
		const share = Math.abs(now - old) / Math.max(old, now);
		return (now > old ? "grew" : "shrank") + (share === 1 ? " c4" : share >= 0.5 ? " c3" : share >= 0.1 ? " c2" : " c1");
	}

	function words(old, now) {
		if (old === now)
			return `${bytes(now)}, unchanged`;
		const by = old ? `, ${now > old ? "+" : "\u2212"}${percent(Math.abs(now - old), old)}` : "";
		return `${old ? bytes(old) : "nothing"} → ${now ? bytes(now) : "nothing"} (${signed(now - old)}${by})${old ? now ? "" : ", gone" : ", new"}`;
	}

	function facts(data, list, line) {
		const { old, new: now } = data.diff;
		line.textContent = `${old.name}: ${command(old)} → ${now.name}: ${command(now)}`;
		for (const [what, s] of [["old", old], ["new", now]]) {
			const moment = s.moment === "time" ? `at ${seconds(s.time)}` : `${s.moment} at ${seconds(s.time)}`;
			const texts = [`${what}: ${bytes(s.bytes)} (${moment})`, `${count(s.events)} events`, `${count(s.lost)} lost`];
			if (s.detail)
				texts.push("reduced detail");
			list.append(el("li", { textContent: texts.join(", "), className: s.lost || s.detail ? "warn" : "", title: Words.detail(s.detail) }));
		}
	}

	// The text next to the total change.
	function headline(data, view, width) {
		const { old, new: now } = data.diff;
		const what = { both: "widths: the larger of both", old: `widths: ${old.name}`, new: `widths: ${now.name}` }[view.id];
		const by = old.bytes && old.bytes !== now.bytes ? ` (${now.bytes > old.bytes ? "+" : "\u2212"}${percent(Math.abs(now.bytes - old.bytes), old.bytes)})` : "";
		return `from ${old.name} to ${now.name}: ${bytes(old.bytes)} → ${bytes(now.bytes)}${by} · ${what}, ${bytes(width)}`;
	}

	const LEGEND = [["grew c4", "New"], ["grew c3", "Grew by half or more"], ["grew c1", "Grew"], ["same", "Unchanged"],
		["shrank c1", "Shrank"], ["shrank c3", "Shrank by half or more"], ["shrank c4", "Gone"]];

	// Rows by each stack's last line of user code or, without one, by its innermost frame.
	function byLine(data, frames, view) {
		const rows = new Map();
		view.node.forEach((node, i) => {
			let at = node;
			for (let n = node; n >= 0; n = data.nodes.parent[n])
				if (frames[data.nodes.frame[n]].kind === "user") {
					at = n;
					break;
				}
			const f = data.nodes.frame[at];
			const row = rows.get(f) ?? { frame: frames[f], old: 0, new: 0 };
			row.old += view.old[i];
			row.new += view.new[i];
			rows.set(f, row);
		});
		return [...rows.values()].sort((a, b) => Math.abs(b.new - b.old) - Math.abs(a.new - a.old) || b.new - a.new);
	}

	const tr = (body, tag, texts, cls) => body.append(el("tr", { className: cls }, ...texts.map(text => el(tag, { textContent: text }))));

	function table(data, frames, box) {
		const rows = byLine(data, frames, data.devices[0].views[0]), t = el("table");
		const sum = list => list.reduce((a, r) => ({ old: a.old + r.old, new: a.new + r.new }), { old: 0, new: 0 });
		const cells = (r, where) => [signed(r.new - r.old), bytes(r.old), bytes(r.new), where];
		tr(t.createTHead(), "th", ["Change", "Old", "New", "Location"], "");
		const body = t.createTBody();
		for (const r of rows.slice(0, ROWS)) {
			const f = r.frame;
			tr(body, "td", cells(r, (f.file ? `${Flames.base(f)} (${f.name})` : f.name) + (f.was ? `, moved from :${f.was}` : "")),
				colour(r.old, r.new).split(" ")[0]);
		}
		const rest = rows.slice(ROWS);
		if (rest.length)
			tr(body, "td", cells(sum(rest), Words.more(rest.length)), "");
		tr(t.createTFoot(), "td", cells(sum(rows), "all"), "");
		box.append(t);
		box.hidden = false;
	}

	return { expand, colour, words, signed, facts, headline, LEGEND, table };
})();
