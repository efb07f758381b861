//! The forms of texts.

use super::Text;

pub static NAME: Text =
    Text { name: "name", wanted: "1 to 32 of a-z, 0-9, _ and -", pattern: "^[a-z0-9_-]{1,32}$", except: &[] };

pub static CLASS_NAME: Text = Text {
    name: "class_name",
    wanted: "1 to 32 of a-z, 0-9, _ and -, but not default",
    pattern: NAME.pattern,
    except: &["default"],
};

pub static LABEL: Text = Text {
    name: "label",
    wanted: "1 to 32 of a-z, 0-9, _ and -, but not none",
    pattern: NAME.pattern,
    except: &["none"],
};

/// Keys of objects in which a limit could stand as well: one of its words makes a limit of them.
pub static ENTRY_NAME: Text = Text {
    name: "entry_name",
    wanted: "1 to 32 of a-z, 0-9, _ and -, but not requests, per or burst",
    pattern: NAME.pattern,
    except: &["requests", "per", "burst"],
};

pub static VARIABLE: Text = Text {
    name: "variable",
    wanted: "the name of an environment variable, of A-Z, a-z, 0-9 and _, without a digit at the start",
    pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
    except: &[],
};

pub static HEADER_NAME: Text = Text {
    name: "header_name",
    wanted: "the name of a header in lower case",
    pattern: "^[a-z0-9!#$%&'*+.^_`|~-]+$",
    except: &[],
};

pub static HEADER_VALUE: Text = Text {
    name: "header_value",
    wanted: "visible ASCII, and spaces inside",
    pattern: "^[!-~]([ -~]*[!-~])?$",
    except: &[],
};

pub static METHOD: Text =
    Text { name: "method", wanted: "a method in capitals, 32 bytes at most", pattern: "^[A-Z_-]{1,32}$", except: &[] };

/// What is normal without a look at `paths`. Escapes are those of bytes that are not unreserved, and not of NUL.
pub static PATH: Text = Text {
    name: "path",
    wanted: "a path in normal form; {name} is one segment, /** at the end all below",
    pattern: concat!(
        r"^(?=/)(?:/(?:\{[A-Za-z0-9_]+\}|(?!\.{1,2}(?:/|$))(?:[A-Za-z0-9._~:@!$&'()+,;=-]",
        r"|%(?:0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF]|[89A-F][0-9A-F]))+))*(?:/|/\*\*)?$"
    ),
    except: &[],
};

pub static TOP_PATH: Text = Text {
    name: "top_path",
    wanted: "a path that the service behind does not have, without a query",
    pattern: r##"^/[!"$->@-~]+$"##,
    except: &[],
};

pub static HOST: Text = Text {
    name: "host_name",
    wanted: "a name in lower case without a port, such as api.example.com or *.example.com, or an IPv6 address in brackets",
    pattern: r"^(\[[^A-Z\]]*\]|(\*\.)?[a-z0-9._-]*[a-z0-9_-])$",
    except: &[],
};

pub static GRPC_NAME: Text = Text {
    name: "grpc_name",
    wanted: "a name of gRPC, such as shop.v1.Cart or Get",
    pattern: "^[A-Za-z0-9._]+$",
    except: &[".", ".."],
};

pub static NOT_EMPTY: Text =
    Text { name: "not_empty", wanted: "a text that is not empty", pattern: r"^[\s\S]", except: &[] };

pub static PROPERTY_PART: Text = Text {
    name: "property_part",
    wanted: "a part of a property's name, not empty and without NUL",
    pattern: r"^[^\x00]+$",
    except: &[],
};

pub static TENANT: Text = Text {
    name: "tenant",
    wanted: "label.value, such as user.acme; label.~HASH for a secret source; client_ip.10.0.0.0/8 for a network",
    pattern: r"^(?!none\.)[a-z0-9_-]{1,32}\.[\s\S]|^none\.[a-z0-9_-]{1,32}$",
    except: &[],
};

/// Those that have a form.
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

pub static ANY_TEXT: Text = Text { name: "text", wanted: "a text", pattern: "", except: &[] };
