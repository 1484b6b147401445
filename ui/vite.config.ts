import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const OUT = "../src/corral/web/static";
const LEAST_BYTES = 1024;

/** Beside each file its packed forms, so that the head packs nothing. */
function packed(): Plugin {
  return {
    name: "packed",
    apply: "build",
    closeBundle() {
      for (const folder of [OUT, join(OUT, "assets")]) {
        for (const name of readdirSync(folder)) {
          if (!/\.(js|css|html|svg)$/.test(name)) continue;
          const path = join(folder, name);
          const content = readFileSync(path);
          if (content.length < LEAST_BYTES) continue;
          writeFileSync(`${path}.br`, brotliCompressSync(content));
          writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
        }
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), packed()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
  },
  server: { proxy: { "/v1": process.env.CORRAL_URL ?? "http://127.0.0.1:8000" } },
  test: { include: ["src/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
