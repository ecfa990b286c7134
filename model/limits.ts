// Every fixed limit and time-out of the project, each with its unit in its name.

const KIB = 1024;
const MIB = 1024 * KIB;

// Control plane
export const METADATA_PAIRS_MAX = 16;
export const METADATA_KEY_CHARACTERS_MAX = 64;
export const METADATA_VALUE_CHARACTERS_MAX = 512;
export const DISPLAY_NAME_CHARACTERS_MAX = 255;
export const DESCRIPTION_CHARACTERS_MAX = 2048;
export const SECRET_VALUE_BYTES_MAX = 32 * KIB;
export const LOW_ENTROPY_BYTES_BELOW = 16;
export const CREDENTIAL_HOSTS_MAX = 16;
export const ENVIRONMENT_HOSTS_MAX = 256;
export const ENVIRONMENT_CIDRS_MAX = 64;
export const CREDENTIALS_PER_VAULT_MAX = 20;
export const VAULTS_PER_SESSION_MAX = 50;
export const PAGE_LIMIT_DEFAULT = 20;
export const PAGE_LIMIT_MAX = 100;
export const SESSION_TTL_DEFAULT_SECONDS = 7 * 24 * 3600;
export const SESSION_TTL_MAX_SECONDS = 10 * 365 * 24 * 3600;
export const ADMIN_BODY_BYTES_MAX = 1 * MIB;
export const ADMIN_TOKEN_CHARACTERS_MIN = 32;
export const ADMIN_FAILED_LOGINS_PER_MINUTE_MAX = 30;
export const ADMIN_HEADER_BYTES_MAX = 16 * KIB;
export const ADMIN_REQUEST_TIMEOUT_MS = 60_000;
export const AUDIT_STREAMS_MAX = 64;
/** How long a connection to the admin API stays open between requests. */
export const ADMIN_KEEP_ALIVE_MS = 72_000;
/** Connections to the admin port, those of live audit streams apart. */
export const ADMIN_CONNECTIONS_MAX = 256;
/** What a connection to the admin port has for a request's head, and before that for a TLS handshake. */
export const ADMIN_HEAD_TIMEOUT_MS = 10_000;
export const ADMIN_HEAD_CHECK_INTERVAL_MS = 1_000;
/** What a client of the admin API has to leave in after an answer to what was no request. */
export const ADMIN_LINGER_MS = 1_000;
/** File descriptors for what is no connection: databases, the spool, the runtime's own. */
export const DESCRIPTORS_BESIDE_CONNECTIONS = 256;

// Data plane: sizes
export const CLIENT_HELLO_BYTES_MAX = 64 * KIB;
export const CLIENT_HELLO_RECORDS_MAX = 64;
export const HEADER_BLOCK_BYTES_MAX = 64 * KIB;
export const HEADER_FIELDS_MAX = 1000;
/** Bytes of the requests that wait on one HTTP/1.x connection; as many again are read ahead of the parser. */
export const PIPELINED_BYTES_MAX = 64 * KIB;
export const REQUEST_TARGET_BYTES_MAX = 16 * KIB;
export const RESPONSE_HEADER_BLOCK_BYTES_MAX = 256 * KIB;
export const TRAILER_BLOCK_BYTES_MAX = 16 * KIB;
/** All interim responses of one request together. */
export const INTERIM_RESPONSES_BYTES_MAX = 256 * KIB;
/** Interim responses that a client's HTTP/2 connection is given before it has sent the earlier ones. */
export const INTERIM_UNSENT_BYTES_MAX = 64 * KIB;
/** Fields of one header block towards an HTTP/2 client, with 32 bytes for each (RFC 9113 section 6.5.2). */
export const HTTP2_CLIENT_HEADER_LIST_BYTES_MAX = 64 * KIB;
/** What a client may send on one stream before anybody has read it; so much can a stalled upload hold. */
export const HTTP2_CLIENT_STREAM_WINDOW_BYTES = 256 * KIB;
/** The same on all streams of a client's connection together, before the runtime has taken it off the connection. */
export const HTTP2_CLIENT_CONNECTION_WINDOW_BYTES = 4 * MIB;
/** What an upstream may send on one stream before anybody has read it; so much can a stalled download hold. */
export const HTTP2_UPSTREAM_STREAM_WINDOW_BYTES = 256 * KIB;
export const HTTP2_UPSTREAM_CONNECTION_WINDOW_BYTES = 1 * MIB;
export const HTTP2_SEND_HEADER_BLOCK_BYTES_MAX = 256 * KIB;
export const CHUNK_EXTENSION_BYTES_MAX = 4 * KIB;
export const BODY_BUFFER_DEFAULT_BYTES = 1 * MIB;
export const BODY_MEMORY_DEFAULT_BYTES = 64 * MIB;
export const SPOOL_DEFAULT_BYTES = 4 * KIB * MIB;
export const SWAP_GROWTH_DEFAULT_BYTES = 16 * MIB;
export const OBSERVED_BODY_BYTES_MAX = 1 * MIB;
export const DECODED_BYTES_BEFORE_RATIO = 1024 * MIB;
export const DECODED_RATIO_MAX = 200;
export const INFLATE_TURN_BYTES = 256 * KIB;
export const ZSTD_WINDOW_LOG_MAX = 23;
export const SPOOL_READ_BYTES = 128 * KIB;
export const BODY_BATCH_BYTES = 128 * KIB;
export const BODY_SMALL_CHUNK_BYTES = 4 * KIB;
export const CODING_PROBE_BYTES_MAX = 64 * KIB;
export const WEBSOCKET_MESSAGE_BYTES_MAX = 16 * MIB;

// Data plane: counts
export const TUNNELS_PER_SESSION_MAX = 512;
export const TUNNELS_MAX = 10_000;
export const UNAUTHENTICATED_SOCKETS_MAX = 1024;
export const SESSION_REQUESTS_DEFAULT_MAX = 2048;
/** Requests that a client may send ahead on one HTTP/1.x connection; the next ones stay unread. */
export const PIPELINED_REQUESTS_MAX = 16;
/** Denials in a row suspend a session at its limit; so many times the limit within the window do too. */
export const DENIAL_TOTAL_FACTOR = 3;
export const DENIAL_WINDOW_MS = 60_000;
export const HTTP2_STREAMS_PER_CONNECTION_MAX = 256;
/** Frames that break the protocol, and streams beyond the limit, after which a client's connection is closed. */
export const HTTP2_INVALID_FRAMES_MAX = 100;
/** Requests that a client may take back before their answer is complete: at once, and then per second. */
export const HTTP2_RESETS_BURST_MAX = 512;
export const HTTP2_RESETS_PER_SECOND_MAX = 64;
/** PING and SETTINGS frames of a client: at once, and then per second. */
export const HTTP2_CONTROL_FRAMES_BURST_MAX = 1000;
export const HTTP2_CONTROL_FRAMES_PER_SECOND_MAX = 200;
export const LEAF_CACHE_ENTRIES_MAX = 4096;
export const POOL_IDLE_PER_ORIGIN_MAX = 64;
export const SWAP_PLANS_PER_POLICY_MAX = 64;
export const INFLATING_STREAMS_MAX = 2;
/** Frames of a WebSocket that are gone through before the clock is looked at. */
export const WEBSOCKET_STEP_FRAMES = 64;

export const THREAD_POOL_SIZE_MAX = 1024; // the runtime's own
export const THREAD_POOL_SIZE_DEFAULT = 4; // the runtime's own
export const THREAD_POOL_SIZE_OF_WORKERS = 32;
export const RESOLVE_IN_FLIGHT_MAX = 16;
/** One session gets a part of those: a name server of its own making can hold each of them for long. */
export const RESOLVE_SESSION_SHARE_PERCENT = 25;
export const RESOLVE_QUEUE_PER_SESSION_MAX = 512;
export const DIAL_ADDRESSES_MAX = 16;
export const INTERIM_RESPONSES_MAX = 100;
export const TLS_RESUMPTION_ENTRIES_MAX = 1024;
export const ORIGINS_REMEMBERED_MAX = 1024;
/** How long an origin's word that it wants HTTP/1.1 (HTTP_1_1_REQUIRED) holds. */
export const HTTP1_REQUIRED_REMEMBERED_MS = 300_000;

// Data plane: times
/** What floods of small messages and chunks may use of one turn of the event loop, and a session at least, milliseconds. */
export const TURN_SHARE_US = 4000;
export const TURN_SHARE_MIN_US = 250;
export const RESOLVE_TIMEOUT_MS = 10_000;
export const DIAL_STAGGER_MS = 250;
export const CONNECT_REQUEST_TIMEOUT_MS = 10_000;
export const UPSTREAM_CONNECT_TIMEOUT_MS = 10_000;
export const TLS_HANDSHAKE_TIMEOUT_MS = 10_000;
export const REQUEST_HEADERS_TIMEOUT_MS = 30_000;
export const RESPONSE_HEADERS_TIMEOUT_MS = 900_000;
export const FIRST_BYTES_TIMEOUT_MS = 10_000;
export const TUNNEL_IDLE_TIMEOUT_MS = 300_000;
export const POOL_IDLE_TIMEOUT_MS = 60_000;
export const HTTP2_PROBE_QUIET_MS = 5_000;
export const HTTP2_PROBE_ANSWER_MS = 30_000;
export const HTTP2_PROBE_INTERVAL_MS = 300_000;
/** How long what a client sends after our last answer is read and thrown away: without a byte, and in all. */
export const LINGER_IDLE_TIMEOUT_MS = 2_000;
export const LINGER_TIMEOUT_MS = 10_000;
/** The same for connections that are refused because there are too many. */
export const LINGER_OVERLOADED_MS = 1_000;
export const WEBSOCKET_CLOSE_TIMEOUT_MS = 2_000;
/** How often a client's HTTP/2 connection is looked at for a session that has died, and what a PING has to leave in. */
export const HTTP2_READ_CHECK_MS = 1_000;
export const HTTP2_DEAD_CHECK_MS = 100;
/** How often an HTTP/2 connection that owes interim responses is looked at. */
export const INTERIM_POLL_MS = 20;
export const SESSION_WATCH_INTERVAL_MS = 250;
export const DRAIN_DEFAULT_SECONDS = 20;

// Veil
export const VEIL_VALUE_BYTES_MIN = 8;
export const VEIL_ALL_FORMS_VALUE_BYTES_MAX = 1 * KIB;
export const VEIL_COMPILED_BYTES_MAX = 4 * MIB;
export const VEILS_KEPT_BYTES_MAX = 128 * MIB;
export const VEILS_PER_CONNECTION_MAX = 16;
export const VEIL_IDLE_DEFAULT_MS = 250;

// Store and audit
export const POLICY_CACHE_SESSIONS_MAX = 10_000;
export const ARCHIVED_PLACEHOLDERS_PER_VAULT_MAX = 100;
export const OPENED_VALUE_UNUSED_MS = 60_000;
export const AUDIT_BATCH_INTERVAL_MS = 200;
export const AUDIT_BATCH_EVENTS_MAX = 500;
export const AUDIT_QUEUE_EVENTS_MAX = 20_000;
export const AUDIT_QUEUE_PER_SESSION_MAX = 5_000;
export const AUDIT_PRUNE_EVENTS_MAX = 500;
export const AUDIT_PRUNE_INTERVAL_MS = 60_000;
export const AUDIT_RETRY_MS_MAX = 5_000;
export const AUDIT_RETENTION_DEFAULT_DAYS = 30;
export const AUDIT_DEFAULT_BYTES_MAX = 2 * KIB * MIB;
export const AUDIT_TEXT_CHARACTERS_MAX = 2048;

// Certificates
export const ROOT_LIFETIME_DAYS = 3650;
export const LEAF_LIFETIME_DAYS = 7;
export const CERTIFICATE_BACKDATE_DAYS = 1;
