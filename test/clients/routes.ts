// What the upstream serves beside its own routes: each client's own kind of server.
import { registryRoute } from './registry-clients.ts';
import type { SiteRoute } from './scene.ts';
import { sdkRoute } from './sdk-clients.ts';

const ROUTES: readonly SiteRoute[] = [sdkRoute, registryRoute];

/** Asks each in turn. */
export const route: SiteRoute = async (request, response, site) => {
  for (const one of ROUTES) if (await one(request, response, site)) return true;
  return false;
};
