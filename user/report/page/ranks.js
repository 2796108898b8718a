// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The page of `report --format html`: the ranks of a job as a grid.
"use strict";
(() => {
	const { $, el } = Kit;
	const doc = JSON.parse($("head").textContent), store = Kit.store({ theme: 0 });
	// Names are of files, which a shell may read otherwise.
	const quoted = name => /^[\w.+-]+$/.test(name) && name[0] !== "-" ? name : "'./" + name.replaceAll("'", "'\\''") + "'";
	const command = r => el("span", {}, "its page: ", el("code", { textContent: `memtrace-bpf export html ${quoted(r.recording + ".mtr")}` }));
	const said = (r, words) => $("ranks-at").replaceChildren(el("b", { textContent: words[0] }), ...words.slice(1).map(w => el("span", { textContent: w })), ...(r.recording ? [command(r)] : []));
	const map = RankMap.make($("ranks-grid"), { open: r => map.mark(map.cells.indexOf(r)), said });

	function paint() {
		map.colour($("colour").value);
		RankMap.legend($("ranks-legend"), map);
	}

	const [title, facts] = RankMap.heading(doc);
	document.title = title;
	$("ranks-title").textContent = title;
	$("ranks-facts").textContent = facts;
	$("colour").append(...Object.entries(RankMap.WHAT).map(([value, w]) => el("option", { value, textContent: w.title })));
	$("colour").addEventListener("change", paint);
	$("theme").addEventListener("click", Kit.toggleTheme);
	addEventListener("keydown", e => { if (e.key === "t" && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.matches("select")) Kit.toggleTheme(); });
	store.watch(["theme"], paint);
	map.show(doc);
	RankMap.differ($("ranks-odd"), map, r => map.mark(map.cells.indexOf(r)));
	Kit.twin($("ranks-twin"), () => RankMap.table(map, doc));
	paint();
	document.body.dataset.state = "ready";
})();
