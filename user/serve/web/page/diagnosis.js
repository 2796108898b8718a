// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What `diagnose` says of a capture, above its report.
"use strict";
(() => {
	const { $ } = Page;
	let of = "", diagnosis = null;

	function use(f) {
		const line = Findings.line(f), device = f.device ?? "";
		if (f.code === "out_of_memory")
			return { title: "Go to that moment", run: () => Page.report.change({ tab: "rows", device, at: "oom" }) };
		if (f.bytes_per_step)
			return { title: "Show what grows", run: () => Page.report.change({ tab: "leaks" }) };
		return line && { title: "Filter to this line", run: () => Page.report.change({ tab: "rows", device, filter: line }) };
	}

	// Asks once a capture. then(): the answer is there.
	async function show(id, then) {
		if (of === id)
			return;
		of = id;
		diagnosis = null;
		$("trace-findings").replaceChildren();
		try {
			const answer = await Page.net.api(`trace/${encodeURIComponent(id)}/diagnose`);
			if (of !== id)
				return;
			diagnosis = answer;
			Findings.show($("trace-findings"), diagnosis, use);
			then();
		} catch {
			if (of === id)
				of = ""; // the report says why the capture cannot be read
		}
	}

	// The device of the finding that memory was out; null: there is none.
	const oomDevice = id => of === id && diagnosis?.findings.find(f => f.code === "out_of_memory")?.device || null;

	Page.diagnosis = { show, oomDevice };
})();
