//! Who the client is, by what stands before: one table for the core, by what Envoy says, and for a real Envoy
//! (`tests/envoy/address.rs`), by what is sent to it.

/// How Envoy's connection manager settles on the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// `use_remote_address: true`, and `xff_num_trusted_hops`.
    Edge(u16),
    /// `use_remote_address: false`, and `xff_num_trusted_hops`.
    Inner(u16),
    /// Not to be had over TCP on loopback.
    Other,
}

use Manager::{Edge, Inner, Other};

/// Where the client's address is told, in words of a policy.
pub const HOST: &str = r#""host""#;
pub const EDGE: &str = r#"{"from": "x_forwarded_for", "peer_appended": true, "trusted_hops": 0}"#;
pub const ONE_HOP: &str = r#"{"from": "x_forwarded_for", "peer_appended": true, "trusted_hops": 1}"#;
pub const TWO_HOPS: &str = r#"{"from": "x_forwarded_for", "peer_appended": true, "trusted_hops": 2}"#;
pub const INNER: &str = r#"{"from": "x_forwarded_for", "peer_appended": false, "trusted_hops": 1}"#;
pub const INNER_TWO: &str = r#"{"from": "x_forwarded_for", "peer_appended": false, "trusted_hops": 2}"#;

/// What stands before, and Envoy's configuration; the peer and X-Forwarded-For as they come in (a line each); what
/// Envoy makes of them as source.address; the safe words, and the client by them.
pub type Case<'c> = (&'c str, Manager, &'c str, &'c str, &'c str, &'c str, &'c str);

/// X-Forwarded-For as weir gets it: an edge has joined its lines and appended the peer.
pub fn forwarded(manager: Manager, peer: &str, sent: &str) -> String {
    let mut values: Vec<&str> = sent.split('\n').filter(|line| !line.is_empty()).collect();
    if let Edge(_) = manager {
        values.push(peer);
    }
    values.join(",")
}

#[rustfmt::skip]
pub const CASES: &[Case] = &[
    // An edge Envoy: source.address is the peer, and X-Forwarded-For ends with it.
    ("edge", Edge(0), "203.0.113.7", "", "203.0.113.7:4711", HOST, "203.0.113.7"),
    ("edge", Edge(0), "203.0.113.7", "", "203.0.113.7:4711", EDGE, "203.0.113.7"),
    ("edge, spoofed", Edge(0), "203.0.113.7", "9.9.9.9, 8.8.8.8", "203.0.113.7:4711", HOST, "203.0.113.7"),
    ("edge, spoofed", Edge(0), "203.0.113.7", "9.9.9.9, 8.8.8.8", "203.0.113.7:4711", EDGE, "203.0.113.7"),
    ("edge, spoofed twice", Edge(0), "203.0.113.7", "9.9.9.9\n8.8.8.8", "203.0.113.7:4711", EDGE, "203.0.113.7"),
    ("edge, spoofed junk", Edge(0), "203.0.113.7", "unknown, \" ,,x;", "203.0.113.7:4711", HOST, "203.0.113.7"),
    ("edge, spoofed junk", Edge(0), "203.0.113.7", "unknown, \" ,,x;", "203.0.113.7:4711", EDGE, "203.0.113.7"),
    ("edge, private", Edge(0), "10.0.0.1", "9.9.9.9", "10.0.0.1:4711", HOST, "10.0.0.1"),
    ("edge, IPv6", Edge(0), "2001:db8:1:2:3:4:5:6", "", "[2001:db8:1:2:3:4:5:6]:4711", HOST, "2001:db8:1:2::"),
    ("edge, IPv6", Edge(0), "2001:db8:1:2:3:4:5:6", "", "[2001:db8:1:2:3:4:5:6]:4711", EDGE, "2001:db8:1:2::"),
    ("edge, neighbour", Edge(0), "2001:db8:1:2::9", "9.9.9.9", "[2001:db8:1:2::9]:4711", HOST, "2001:db8:1:2::"),
    ("edge, mapped", Edge(0), "::ffff:203.0.113.7", "", "[::ffff:203.0.113.7]:4711", HOST, "203.0.113.7"),
    ("edge, mapped", Edge(0), "::ffff:203.0.113.7", "", "[::ffff:203.0.113.7]:4711", EDGE, "203.0.113.7"),
    ("edge, link-local", Other, "", "", "[fe80::1%eth0]:4711", HOST, "fe80::"),
    ("edge, no address", Other, "", "", "/var/run/envoy.sock", HOST, ""),
    ("edge, none", Other, "", "203.0.113.7", "", HOST, ""),
    // A load balancer that appends the client before an edge Envoy: the peer is the balancer.
    ("balancer", Edge(0), "10.0.0.1", "203.0.113.7", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer, spoofed", Edge(0), "10.0.0.1", "9.9.9.9, 203.0.113.7", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer, spoofed", Edge(0), "10.0.0.1", "9.9.9.9,,203.0.113.7", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer, spoofed junk", Edge(0), "10.0.0.1", "\" , ,x, 203.0.113.7", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer, own line", Edge(0), "10.0.0.1", "9.9.9.9\n203.0.113.7", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer, IPv6", Edge(0), "10.0.0.1", "2001:DB8:0001:0002::1", "10.0.0.1:4711", ONE_HOP, "2001:db8:1:2::"),
    ("balancer with a zone", Edge(0), "10.0.0.1", "fe80::1%eth0", "10.0.0.1:4711", ONE_HOP, "fe80::"),
    ("balancer, mapped", Edge(0), "10.0.0.1", "::FFFF:203.0.113.7", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer with ports", Edge(0), "10.0.0.1", "203.0.113.7:4711", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("balancer with ports, IPv6", Edge(0), "10.0.0.1", "[2001:db8::1]:4711", "10.0.0.1:4711", ONE_HOP, "2001:db8::"),
    // Without the balancer the chain is too short: nobody, and never the balancer's or the client's own word.
    ("past the balancer", Edge(0), "203.0.113.7", "", "203.0.113.7:4711", ONE_HOP, ""),
    ("balancer, client is junk", Edge(0), "10.0.0.1", "unknown", "10.0.0.1:4711", ONE_HOP, ""),
    ("balancer, client is empty", Edge(0), "10.0.0.1", "9.9.9.9,", "10.0.0.1:4711", ONE_HOP, ""),
    ("past the balancer, no header", Other, "", "", "203.0.113.7:4711", ONE_HOP, ""),
    // xff_num_trusted_hops: 1 makes the host say the same.
    ("counted", Edge(1), "10.0.0.1", "203.0.113.7", "203.0.113.7:0", HOST, "203.0.113.7"),
    ("counted, spoofed", Edge(1), "10.0.0.1", "9.9.9.9, 203.0.113.7", "203.0.113.7:0", HOST, "203.0.113.7"),
    ("counted, spoofed", Edge(1), "10.0.0.1", "9.9.9.9, 203.0.113.7", "203.0.113.7:0", ONE_HOP, "203.0.113.7"),
    ("counted, IPv6", Edge(1), "10.0.0.1", "2001:DB8:0001:0002::1", "[2001:db8:1:2::1]:0", HOST, "2001:db8:1:2::"),
    ("counted, mapped", Edge(1), "10.0.0.1", "::ffff:203.0.113.7", "[::ffff:203.0.113.7]:0", HOST, "203.0.113.7"),
    // What Envoy cannot read, it takes for the peer: one bucket for all behind that balancer.
    ("counted, junk", Edge(1), "10.0.0.1", "203.0.113.7, unknown", "10.0.0.1:4711", HOST, "10.0.0.1"),
    ("counted with ports", Edge(1), "10.0.0.1", "203.0.113.7:4711", "10.0.0.1:4711", HOST, "10.0.0.1"),
    ("counted with ports", Edge(1), "10.0.0.1", "203.0.113.7:4711", "10.0.0.1:4711", ONE_HOP, "203.0.113.7"),
    ("counted, none", Edge(1), "10.0.0.1", "", "10.0.0.1:4711", HOST, "10.0.0.1"),
    // A CDN before the balancer.
    ("CDN", Edge(0), "10.0.0.1", "9.9.9.9, 203.0.113.7, 192.0.2.1", "10.0.0.1:4711", TWO_HOPS, "203.0.113.7"),
    ("past the CDN", Edge(0), "10.0.0.1", "203.0.113.7", "10.0.0.1:4711", TWO_HOPS, ""),
    ("CDN and host", Edge(2), "10.0.0.1", "9.9.9.9, 203.0.113.7, 192.0.2.1", "203.0.113.7:0", HOST, "203.0.113.7"),
    ("past the CDN and host", Edge(2), "10.0.0.1", "203.0.113.7", "10.0.0.1:4711", HOST, "10.0.0.1"),
    // An inner Envoy: the header is as the edge sent it, source.address its last entry.
    ("inner", Inner(0), "10.0.0.2", "203.0.113.7", "203.0.113.7:0", INNER, "203.0.113.7"),
    ("inner, spoofed", Inner(0), "10.0.0.2", "9.9.9.9, 8.8.8.8, 203.0.113.7", "203.0.113.7:0", INNER, "203.0.113.7"),
    ("inner, IPv6", Inner(0), "10.0.0.2", "9.9.9.9, 2001:db8:1:2::1", "[2001:db8:1:2::1]:0", INNER, "2001:db8:1:2::"),
    ("behind two", Inner(0), "10.0.0.2", "9.9.9.9, 203.0.113.7, 10.0.0.1", "10.0.0.1:0", INNER_TWO, "203.0.113.7"),
    ("behind two, past one", Inner(0), "10.0.0.2", "203.0.113.7", "203.0.113.7:0", INNER_TWO, ""),
    ("counted two", Inner(1), "10.0.0.2", "9.9.9.9, 203.0.113.7, 10.0.0.1", "203.0.113.7:0", HOST, "203.0.113.7"),
    ("counted two", Inner(1), "10.0.0.2", "9.9.9.9, 203.0.113.7, 10.0.0.1", "203.0.113.7:0", INNER_TWO, "203.0.113.7"),
    ("inner, no header", Inner(0), "10.0.0.2", "", "10.0.0.2:4711", INNER, ""),
    ("inner, junk", Inner(0), "10.0.0.2", "203.0.113.7, unknown", "10.0.0.2:4711", INNER, ""),
];
