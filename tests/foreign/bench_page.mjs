// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// How long a page of export html takes to show something, to have its events, and how many pictures a second a brush
// gets while table and view follow it: node bench_page.mjs PAGE.html [SECONDS]
// Prints one JSON document. $CHROMIUM names the browser. Exit 77: there is none.
import { statSync } from "node:fs";
import { close, launch, open, settled } from "./page.mjs";

const [file, seconds = "3"] = process.argv.slice(2);
if (!file) {
	console.error("usage: node bench_page.mjs PAGE.html [SECONDS]");
	process.exit(64);
}
const browser = await launch();
const median = a => a.toSorted((x, y) => x - y)[a.length >> 1];

const opened = [];
for (let i = 0; i < 5; i++) {
	const page = await open(browser, file);
	opened.push(await page.evaluate(() => ({
		first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime, picture: performance.getEntriesByName("first-picture")[0].startTime,
		ready: performance.getEntriesByName("ready")[0].startTime, open: performance.getEntriesByName("open")[0].duration,
	})));
	await close(page);
}

// A picture for each move of the brush, to and fro over all that is shown: [pictures a second, the slowest of twenty, in ms]
async function brush(page, tab, by, a, b) {
	await page.evaluate(([t, k]) => Page.set({ tab: t, by: k }), [tab, by]);
	await settled(page);
	const r = await page.locator("#plot .u-over").boundingBox(), y = r.y + r.height * 0.4;
	await page.mouse.move(r.x + r.width * a, y);
	await page.mouse.down();
	const times = await page.evaluate(({ r, y, b, a, ms }) => new Promise(done => {
		const box = document.querySelector("#plot .u-over"), out = [], from = performance.now();
		let last = from, k = 0;
		const step = now => {
			out.push(now - last);
			last = now;
			if (now - from > ms) {
				done(out.slice(2));
				return;
			}
			const f = 0.5 - 0.5 * Math.cos(k++ / 40);
			box.dispatchEvent(new PointerEvent("pointermove", { clientX: r.x + r.width * (a + (b - a) * f), clientY: y, bubbles: true, pointerType: "mouse" }));
			requestAnimationFrame(step);
		};
		requestAnimationFrame(step);
	}), { r, y, a, b, ms: Number(seconds) * 1000 });
	await page.mouse.up();
	await settled(page);
	const all = times.reduce((x, t) => x + t, 0);
	return { pictures_per_second: +(1000 * times.length / all).toFixed(1), slow_ms: +times.toSorted((x, t) => t - x)[Math.floor(times.length / 20)].toFixed(1) };
}

const page = await open(browser, file);
const events = await page.evaluate(() => Page.head.capture.events), moments = await page.evaluate(() => Page.moments().length);
const brushed = {};
for (const [tab, by] of [["flame", "line"], ["flame", "stack"], ["modules", "module"], ["lives", "line"], ["segments", "line"]])
	if (await page.evaluate(t => Page.tabsHere.includes(t), tab)) {
		brushed[`${tab}, by ${by}`] = await brush(page, tab, by, 0.1, 0.95);
		await page.keyboard.press("Escape");
	}
// A moment dragged by the keys, and the timeline zoomed by the wheel.
const zoom = await page.evaluate(ms => new Promise(done => {
	const out = [], from = performance.now(), box = document.querySelector("#plot .u-over"), r = box.getBoundingClientRect();
	let last = from, k = 0;
	const step = now => {
		out.push(now - last);
		last = now;
		if (now - from > ms) {
			done(out.slice(2));
			return;
		}
		box.dispatchEvent(new WheelEvent("wheel", { deltaY: k++ % 60 < 30 ? -40 : 40, clientX: r.x + r.width * 0.6, clientY: r.y + 40, bubbles: true, cancelable: true }));
		requestAnimationFrame(step);
	};
	requestAnimationFrame(step);
}), Number(seconds) * 1000);
await close(page);
await browser.close();
console.log(JSON.stringify({
	page: file, bytes: statSync(file).size, events, moments,
	first_paint_ms: +median(opened.map(o => o.first ?? o.picture)).toFixed(0), first_picture_ms: +median(opened.map(o => o.picture)).toFixed(0),
	ready_ms: +median(opened.map(o => o.ready)).toFixed(0), open_ms: +median(opened.map(o => o.open)).toFixed(0),
	brush: brushed, zoom: { pictures_per_second: +(1000 * zoom.length / zoom.reduce((a, t) => a + t, 0)).toFixed(1) },
}, null, 1));
