// ws with an agent that opens the tunnel.
import { HttpsProxyAgent } from 'https-proxy-agent';
import WebSocket from 'ws';
import { base, proxy, talk } from './connection.mjs';

talk(new WebSocket(`${base.replace('https:', 'wss:')}/ws`, { agent: new HttpsProxyAgent(proxy) }));
