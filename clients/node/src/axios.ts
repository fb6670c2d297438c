import type { AxiosRequestConfig } from "axios";

import type { Client } from "./client.js";
import { politeFetch, type FetchOptions } from "./fetch.js";

/**
 * Returns settings for axios 1.12 or later, for `axios.create(polite(client))`: its adapter for
 * fetch with `politeFetch`. Without the class `Request` axios hands a body over as it is, so that
 * it can be sent again. A `timeout` of axios includes the wait for a permit.
 */
export function polite(client: Client, options: FetchOptions = {}): AxiosRequestConfig {
  const env = { fetch: politeFetch(client, options), Request: null };
  return { adapter: "fetch", env: env as unknown as NonNullable<AxiosRequestConfig["env"]> };
}
