//! Fills the `@NAME@` places of a configuration that users get as well.

use crate::Error;

/// Replaces each `@NAME@` (upper-case letters and `_`) of `template` by its value, in one pass: a value is never searched.
///
/// # Errors
/// The template, called `file`, names a place that has no value.
pub(crate) fn render(file: &str, template: &str, values: &[(&str, &str)]) -> Result<String, Error> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('@') {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let length = after.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(after.len());
        if length == 0 || !after[length..].starts_with('@') {
            text.push('@');
            rest = after;
            continue;
        }
        let name = &after[..length];
        let (_, value) = values.iter().find(|(n, _)| *n == name).ok_or_else(|| {
            let names: Vec<&str> = values.iter().map(|(n, _)| *n).collect();
            Error::new(file, format!("@{name}@"), format!("one of {}", names.join(", ")))
        })?;
        text.push_str(value);
        rest = &after[length + 1..];
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn values_are_not_searched_for_places() {
        let values = [("A", "@B@"), ("B", "b"), ("LONG_NAME", "x")];
        assert_eq!(render("t", "@A@@B@ \"@type\" a@B @LONG_NAME@@", &values).unwrap(), "@B@b \"@type\" a@B x@");
    }

    #[test]
    fn an_unknown_place_is_an_error() {
        assert_eq!(
            render("t.yaml", "port: @PORT@", &[("MODULE", "")]).unwrap_err().to_string(),
            "t.yaml: @PORT@; wanted one of MODULE"
        );
    }
}
