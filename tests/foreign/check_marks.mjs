// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Marks on the timeline of a page of export html: node check_marks.mjs PAGE.html ANSWER.json MARKS.json
// Each mark of MARKS.json, [{time, name}], is drawn and named where a pointer is; a click near it chooses its time. ANSWER.json
// gets what is live there, by mark.
import { readFileSync, writeFileSync } from "node:fs";
import assert from "node:assert/strict";
import { close, launch, open, settled } from "./page.mjs";

const [file, answer, expected] = process.argv.slice(2);
const marks = JSON.parse(readFileSync(expected, "utf8"));
const browser = await launch();
const page = await open(browser, file);
const found = {};

// How many points in the column of each time have the colour of marks, of the plot as it opens; at the end, its height.
const points = await page.evaluate(times => {
	const u = Page.timeline.plot, { left, top, width, height } = u.bbox;
	const wanted = Page.colour("mark").slice(1).match(/../g).map(v => parseInt(v, 16));
	const { data } = u.ctx.getImageData(left, top, width, height);
	return times.map(t => {
		const x = Math.round(u.valToPos(t, "x", true)) - left;
		let n = 0;
		for (let y = 0; y < height; y++)
			for (let k = x - 1; k <= x + 1; k++)
				n += wanted.every((v, i) => Math.abs(data[(y * width + k) * 4 + i] - v) < 90);
		return n;
	}).concat(height);
}, marks.flatMap(m => [m.time, m.time * 0.9]));

for (const { time, name } of marks) {
	const [here, none] = points.splice(0, 2), height = points.at(-1);
	assert.ok(here > height / 3 && none < here / 3, `${name}: ${here} points of ${height} have the colour of marks, ${none} where none is`);
	const box = await page.locator("#plot .u-over").boundingBox();
	const x = box.x + await page.evaluate(t => Page.timeline.plot.valToPos(t, "x"), time);
	await page.mouse.move(x + 2, box.y + box.height / 2);
	await page.waitForSelector("#tip", { state: "visible" });
	const tip = await page.textContent("#tip");
	assert.ok(tip.includes(`Mark: ${name}`), `the pointer is at ${name}, and the tip says ${tip}`);
	await page.mouse.click(x + 2, box.y + box.height / 2);
	await settled(page);
	const state = await page.evaluate(() => ({ time: Page.state.time, allocated: Page.data.figures(Page.state.device, Page.state.moment).allocated }));
	found[name] = state;
}
await page.click("#time details.twin summary");
await page.waitForSelector("#time details.twin td");
const words = await page.textContent("#time details.twin");
for (const { name } of marks)
	assert.ok(words.includes(name), `the chart in words has ${name}`);
assert.equal(await page.locator("b", { hasText: /^bold$/ }).count(), 0, "a name is text");
await close(page);
await browser.close();
writeFileSync(answer, JSON.stringify(found));
