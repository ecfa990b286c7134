// The table of every setting, and the type that it makes.
import { ADMIN_SETTINGS, AUDIT_SETTINGS, BASIC_SETTINGS, CLIENT_SETTINGS } from './config-schema-control.ts';
import { DESTINATION_SETTINGS, PROXY_SETTINGS, SWAP_SETTINGS } from './config-schema-data.ts';
import type { Setting } from './config-setting.ts';

/** Every setting by its name in `Config`, in the order of the documentation. */
export const SETTINGS = {
  ...BASIC_SETTINGS,
  ...ADMIN_SETTINGS,
  ...PROXY_SETTINGS,
  ...DESTINATION_SETTINGS,
  ...SWAP_SETTINGS,
  ...AUDIT_SETTINGS,
  ...CLIENT_SETTINGS,
} as const;

export type SettingName = keyof typeof SETTINGS;

/** What each setting becomes. */
export type SettingValues = {
  readonly [Name in SettingName]: (typeof SETTINGS)[Name] extends Setting<infer Value> ? Value : never;
};
