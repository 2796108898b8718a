// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// PyTorch's own viewer reads a snapshot: check_memoryviz.mjs MEMORYVIZ.JS FILE.pickle ...
//
// MEMORYVIZ.JS is torch/utils/viz/MemoryViz.js of PyTorch's repository. It is run as it is, but for the drawing library
// that it fetches: in its place is something that takes every call. What it computes is printed as JSON: for each device the
// largest total of its timeline, and what its history of segments adds up to at the end and at the beginning.
import {readFileSync, writeFileSync, mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

const PRELUDE = `
const anything = new Proxy(function () {}, {
  get: (_t, key) => key === Symbol.toPrimitive ? () => 0 : key === Symbol.iterator ? undefined : anything,
  apply: () => anything,
  set: () => true,
});
const d3 = anything, axisLeft = anything, scaleLinear = anything, zoom = anything, zoomIdentity = anything, brushX = anything;
const window = anything, event = anything;
const console = {log() {}};
`;
const EPILOGUE = '\nexport {unpickle, annotate_snapshot, process_alloc_data, MemoryView, anything};\n';

function fail(message) {
  process.stderr.write(message + '\n');
  process.exit(1);
}

const [script, ...files] = process.argv.slice(2);
if (!script || !files.length) fail('usage: check_memoryviz.mjs MEMORYVIZ.JS FILE.pickle ...');
const folder = mkdtempSync(join(tmpdir(), 'memoryviz.'));
let viewer;
try {
  const source = readFileSync(script, 'utf8').replace(/^import .*$/gm, '').replace(/^'use strict';/, '');
  const path = join(folder, 'viewer.mjs');
  writeFileSync(path, PRELUDE + source + EPILOGUE);
  viewer = await import(pathToFileURL(path));
} finally {
  rmSync(folder, {recursive: true});
}

for (const file of files) {
  const raw = readFileSync(file);
  const snapshot = viewer.unpickle(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.length));
  viewer.annotate_snapshot(snapshot);
  const devices = snapshot.device_traces.map((trace, device) => {
    const plot = viewer.process_alloc_data(snapshot, device, false, 15000);
    const cached = viewer.process_alloc_data(snapshot, device, true, 15000);
    const view = viewer.MemoryView(viewer.anything, viewer.anything, snapshot, device);
    const [reserved, allocated] = view.draw(trace.length - 1);
    for (let i = 1; i < 8; i++) view.draw(Math.floor(trace.length * i / 8)); // throws where a block lies in no segment
    const [reserved_first, allocated_first] = view.draw(-1);
    return {events: trace.length, peak: plot.max_size, peak_reserved: cached.max_size, elements: plot.elements_length,
            reserved, allocated, reserved_first, allocated_first};
  });
  console.log(JSON.stringify({file, segments: snapshot.segments.length, devices}));
}
