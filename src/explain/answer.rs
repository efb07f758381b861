//! What the client gets, by the state of the buckets.

use super::{Asking, buckets};
use crate::clock::Ms;
use crate::policy::{AlgorithmName, Reset};
use crate::response::{Answer, Header, Outcome, answer};
use crate::rules::{Ruling, judge};

/// What the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerSeen {
    /// In which case.
    pub when: When,
    /// HTTP status; None where the service behind answers.
    pub status: Option<u16>,
    /// Response headers, or those that are added to the service's.
    pub headers: Vec<(&'static str, HeaderSeen)>,
    /// Response body; None where the service behind answers.
    pub body: Option<String>,
}

/// In which case the client gets an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// In every one.
    Always,
    /// Every bucket is full.
    Full,
    /// This bucket is empty, and the others are full.
    Empty {
        /// The name of its rule.
        rule: String,
        /// The period of its limit, where the rule has several.
        per: Option<Ms>,
        /// What it is: a bucket, or a window.
        algorithm: AlgorithmName,
    },
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderSeen {
    /// As it is sent.
    Text(String),
    /// A moment, so many seconds from now.
    FromNow(String),
}

impl Asking<'_> {
    pub(super) fn answers(self) -> Vec<AnswerSeen> {
        let alone = |outcome| vec![self.answer(When::Always, answer(self.policy, &outcome, Ms(0), 0))];
        match judge(self.policy, self.request).ruling {
            Ruling::Pass => alone(Outcome::Pass),
            Ruling::Refuse(refused, rule) => alone(Outcome::Refused(refused, rule)),
            Ruling::Ask(asks) => {
                let answers = buckets::answers(self.policy, &asks).into_iter();
                answers.map(|(when, answer)| self.answer(when, answer)).collect()
            }
        }
    }

    /// Moments of `answer` are told from 0.
    fn answer(self, when: When, answer: Answer) -> AnswerSeen {
        match answer {
            Answer::Pass(headers) => AnswerSeen { when, status: None, headers: self.headers(headers), body: None },
            Answer::Refuse(mut refusal) => {
                refusal.fit(self.request);
                let (status, headers) = (Some(refusal.status), self.headers(refusal.headers));
                AnswerSeen { when, status, headers, body: Some(refusal.body) }
            }
        }
    }

    fn headers(self, headers: Vec<Header>) -> Vec<(&'static str, HeaderSeen)> {
        let is_moment = |name| name == "x-ratelimit-reset" && self.policy.response.reset == Reset::Epoch;
        let seen =
            |(name, value)| (name, if is_moment(name) { HeaderSeen::FromNow(value) } else { HeaderSeen::Text(value) });
        headers.into_iter().map(seen).collect()
    }
}
