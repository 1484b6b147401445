import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import { makeClient } from "./api/client";
import { session, status } from "./api/queries";
import { arrive, followLink, linkIn, mayBeIn, openedIn } from "./api/session";
import "./look/base.css";
import "./look/frame.css";
import "./look/parts.css";
import { applyTheme } from "./look/theme";
import { router } from "./router";

const client = makeClient();

applyTheme();
const link = linkIn(location.hash);
const opened = openedIn(location.hash);
if (link || opened) {
  history.replaceState(null, "", location.pathname + location.search); // a secret, and not kept
}
if (opened) await arrive(opened).catch(() => undefined);
if (link) {
  await followLink(link).catch(() => undefined); // one that is used up: the log-in page says what to do
}
void client.prefetchQuery(session);
if (mayBeIn() && ["/", "/nodes"].includes(location.pathname)) void client.prefetchQuery(status);
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
}
