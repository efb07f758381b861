//! What the words of a policy ask of words that stand deeper, or higher: a secret source of `hash_secret_env`, `local` of
//! `proxies`, a lease of a burst, a value that clients choose of the other rules.

use super::{Defs, Keywords, all_of, any_of, constant, has, map, needs, of_field, refers, text, texts};
use weir::policy::Tree;
use weir::policy::language::{Object, SOURCES};

impl Defs {
    /// What the words of an object ask of others.
    pub(super) fn across(&mut self, object: &Object) -> Vec<Tree> {
        match object.said.name {
            "policy" => self.across_policy(),
            "rule" => {
                // Without tiers there is one limit, or the one tier `default`.
                let one_tier = map([("enum", texts(["requests", "per", "burst", "algorithm", "spread", "default"]))]);
                let without_tiers = of_field("limits", map([("propertyNames", one_tier)]));
                let is_lent = of_field("mode", constant(text("lease")));
                let can_be_lent = map([("properties", map([("limits", self.lent()), ("overrides", self.lent())]))]);
                let asks = not(has("mode", constant(text("local"))));
                vec![
                    when(asks, needs(["on_error"])),
                    when(not(needs(["tier"])), without_tiers),
                    when(is_lent, can_be_lent),
                ]
            }
            "observe" => {
                let is_shown = any_of(["debug_header", "top_path"].map(|word| needs([word])));
                vec![when(map(is_shown), needs(["secret_env"]))]
            }
            "client_ip" => {
                // The peer itself is not in the header then.
                let not_appended = has("peer_appended", constant(Tree::Bool(false)));
                vec![when(not_appended, of_field("trusted_hops", map([("minimum", Tree::Int(1))])))]
            }
            _ => Vec::new(),
        }
    }

    fn across_policy(&mut self) -> Vec<Tree> {
        let secret = map(self.named("secret_source", |_| secret_source()));
        let has_secret = has("key", list_with(secret));
        let is_local = any_of(["mode", "on_error"].map(|word| has(word, constant(text("local")))));
        // Such a rule counts every client, whatever it sends, and can refuse it.
        let of_all = map(any_of(["constant", "client_ip"].map(|word| needs([word]))));
        let first = [("type", text("array")), ("prefixItems", Tree::List(vec![of_all])), ("minItems", Tree::Int(1))];
        let counts_all = all_of([has("key", map(first)), not(has("shadow_mode", constant(Tree::Bool(true))))]);
        let trusted = of_field("key", map([("items", map(self.trusted()))]));
        let several = has("limiters", map([("minProperties", Tree::Int(2))]));
        let routed = has("limiter", when(map([("type", text("object"))]), needs(["default"])));
        let named = when(not(has("mode", constant(text("local")))), routed);
        vec![
            when(several, of_field("rules", map([("items", named)]))),
            when(some_rule(has_secret), needs(["hash_secret_env"])),
            when(some_rule(map(is_local)), needs(["proxies"])),
            when(not(some_rule(map(counts_all))), of_field("rules", map([("items", trusted)]))),
        ]
    }

    /// Limits of which a part can be lent. Items of a list do not refer to the whole: editors that complete lists would
    /// go round in circles.
    fn lent(&mut self) -> Tree {
        let limit = map(self.named("lent_limit", |_| {
            let two = |word| map([(word, map([("minimum", Tree::Int(2))]))]);
            let wanted = "raise the burst to at least 2, or write mode: exact; a burst of 1 cannot be lent";
            vec![
                ("pattern", text("^(?!0*1/[smhd]$)")),
                ("patternErrorMessage", text(wanted)),
                ("properties", two("burst")),
                ("if", not(needs(["burst"]))),
                ("then", map([("properties", two("requests"))])),
            ]
        }));
        let keywords = self.named("lent", |_| {
            let mut keywords = all_of([limit.clone()]);
            keywords.extend([("items", limit), ("additionalProperties", refers("lent"))]);
            keywords
        });
        map(keywords)
    }
}

fn when(condition: Tree, then: Tree) -> Tree {
    map([("if", condition), ("then", then)])
}

fn not(of: Tree) -> Tree {
    map([("not", of)])
}

fn list_with(item: Tree) -> Tree {
    map([("type", text("array")), ("contains", item)])
}

/// Holds of a policy of which some rule is like this.
fn some_rule(rule: Tree) -> Tree {
    has("rules", list_with(rule))
}

fn secret_source() -> Keywords {
    let mut choices = Vec::new();
    for source in &SOURCES {
        let may_be_secret = source.object.fields.iter().any(|field| field.word == "secret");
        let typed = |kind: &str, of| map(all_of([map([("type", text(kind))]), of]));
        choices.push(match source.word {
            word if source.is_secret => needs([word]),
            "all" => {
                let list = list_with(refers("secret_source"));
                has("all", map(any_of([list.clone(), typed("object", has("sources", list))])))
            }
            word if may_be_secret => has(word, typed("object", has("secret", constant(Tree::Bool(true))))),
            _ => continue,
        });
    }
    let mut keywords = any_of(choices);
    keywords.insert(0, ("type", text("object")));
    keywords
}
