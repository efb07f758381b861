//! The forms of texts.
//!
//! A form is told twice, for a function cannot stand in a schema and an expression is too much for the module: a test
//! holds the two together.

use super::{Text, text_of};

const NAME_PATTERN: &str = "^[a-z0-9_-]{1,32}$";

/// It stands in Redis keys and metric names.
pub static NAME: Text = text_of("name", NAME_PATTERN, is_name, "is no name", "1 to 32 of a-z, 0-9, _ and -");

pub(super) static CLASS_NAME: Text = text_of(
    "class_name",
    NAME_PATTERN,
    is_name,
    "is no name of a class",
    "1 to 32 of a-z, 0-9, _ and -, but not default, which is the class of what matches nothing",
)
.but(&["default"]);

/// The first part of a tenant.
pub static LABEL: Text = text_of(
    "label",
    NAME_PATTERN,
    is_name,
    "is no label of a source",
    "1 to 32 of a-z, 0-9, _ and -, but not none, which is the label of tenants that no source named",
)
.but(&["none"]);

/// Keys of objects in which a limit could stand as well: one of its words makes a limit of them.
pub(super) static ENTRY_NAME: Text = text_of(
    "entry_name",
    NAME_PATTERN,
    is_name,
    "is no name",
    "1 to 32 of a-z, 0-9, _ and -, but not requests, per or burst",
)
.but(&["requests", "per", "burst"]);

/// A variable of the proxy's environment.
pub static VARIABLE: Text = text_of(
    "variable",
    "^[A-Za-z_][A-Za-z0-9_]*$",
    |text| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !text.is_empty() && !text.starts_with(|letter: char| letter.is_ascii_digit()) && text.bytes().all(is_letter)
    },
    "names no environment variable",
    "the name of an environment variable, of A-Z, a-z, 0-9 and _, without a digit at the start; a secret itself has no place in a policy",
);

/// As hosts ask for it.
pub static HEADER_NAME: Text = text_of(
    "header_name",
    "^[a-z0-9!#$%&'*+.^_`|~-]+$",
    |text| {
        let is_token =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !text.is_empty() && text.bytes().all(is_token)
    },
    "is no header",
    "the name of a header in lower case",
);

/// What may stand in a header.
pub static HEADER_VALUE: Text = text_of(
    "header_value",
    "^[!-~]([ -~]*[!-~])?$",
    |text| !text.is_empty() && text.trim() == text && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()),
    "is no header value",
    "visible ASCII, and spaces inside",
);

/// A method of HTTP.
pub static METHOD: Text = text_of(
    "method",
    "^[A-Z_-]{1,32}$",
    |text| {
        let capitals = |byte: u8| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_';
        (1..=32).contains(&text.len()) && text.bytes().all(capitals)
    },
    "is no method",
    "a method in capitals, 32 bytes at most",
);

/// What is normal without a look at `paths`, which the decoder has. Escapes are those of bytes that are not unreserved,
/// and not of NUL.
pub(super) static PATH: Text = text_of(
    "path",
    concat!(
        r"^(?=/)(?:/(?:\{[A-Za-z0-9_]+\}|(?!\.{1,2}(?:/|$))(?:[A-Za-z0-9._~:@!$&'()+,;=-]",
        r"|%(?:0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF]|[89A-F][0-9A-F]))+))*(?:/|/\*\*)?$"
    ),
    any,
    "is no path",
    "a path in normal form; {name} is one segment, /** at the end all below",
);

/// A path as it is sent.
pub(super) static TOP_PATH: Text = text_of(
    "top_path",
    r##"^/[!"$->@-~]+$"##,
    |text| {
        let is_of_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        text.len() > 1 && text.starts_with('/') && text.bytes().all(is_of_path)
    },
    "is no path that can be the filter's own",
    "a path that the service behind does not have, without a query, such as /.weir/top",
);

/// The decoder asks more: it has to be as requests are compared.
pub(super) static HOST: Text = text_of(
    "host_name",
    r"^(\[[^A-Z\]]*\]|(\*\.)?[a-z0-9._-]*[a-z0-9_-])$",
    any,
    "is no host",
    "a name in lower case without a port, such as api.example.com or *.example.com, or an IPv6 address in brackets",
);

/// A service or a method of gRPC.
pub static GRPC_NAME: Text = text_of(
    "grpc_name",
    "^[A-Za-z0-9._]+$",
    |text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte)),
    "is no name of gRPC",
    "a name of gRPC, such as shop.v1.Cart or Get",
)
.but(&[".", ".."]);

/// What would name nobody where it is empty.
pub static NOT_EMPTY: Text = text_of(
    "not_empty",
    r"^[\s\S]",
    |text| !text.is_empty(),
    "is empty and would name nobody",
    "a text that is not empty",
);

/// Hosts are asked with NULs between the parts.
pub static PROPERTY_PART: Text = text_of(
    "property_part",
    r"^[^\x00]+$",
    |text| !text.is_empty() && !text.contains('\0'),
    "is no part of a property's name",
    "a part of a property's name, not empty and without NUL",
);

/// The decoder asks more: what stands behind the label depends on its source.
pub(super) static TENANT: Text = text_of(
    "tenant",
    r"^(?!none\.)[a-z0-9_-]{1,32}\.[\s\S]|^none\.[a-z0-9_-]{1,32}$",
    any,
    "is no tenant",
    "label.value, such as user.acme; label.~HASH for a secret source; client_ip.10.0.0.0/8 for a network",
);

pub(super) static ANY_TEXT: Text = text_of("text", "", any, "", "a text");

/// Those that have a form.
#[cfg(feature = "cli")]
pub static TEXTS: [&Text; 15] = [
    &TOP_PATH,
    &NAME,
    &CLASS_NAME,
    &LABEL,
    &ENTRY_NAME,
    &TENANT,
    &VARIABLE,
    &HEADER_NAME,
    &HEADER_VALUE,
    &METHOD,
    &PATH,
    &HOST,
    &GRPC_NAME,
    &PROPERTY_PART,
    &NOT_EMPTY,
];

fn is_name(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(is_of_name)
}

fn any(_: &str) -> bool {
    true
}
