//! Answers of language models, without a model.

use http::Method;
use politely_core::budget::UnitCosts;
use serde_json::{Value, json};

/// The completion of a request that names no `max_tokens`.
const COMPLETION: u64 = 16;
/// The most tokens of one completion.
const COMPLETION_MAX: u64 = 1 << 20;

/// The tokens that a call of a model used.
pub(super) struct Use {
    is_anthropic: bool,
    input: u64,
    output: u64,
    model: String,
}

/// Returns the use of a call of a model, or `None` for any other request.
pub(super) fn use_of(method: &Method, path: &str, body: &[u8]) -> Option<Use> {
    let is_anthropic = path.ends_with("/messages");
    let is_model = is_anthropic || path.ends_with("/chat/completions");
    if method != Method::POST || !is_model {
        return None;
    }
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let number = |name: &str| asked.get(name).and_then(Value::as_u64);
    let output = number("max_completion_tokens").or_else(|| number("max_tokens"));
    let model = asked
        .get("model")
        .and_then(Value::as_str)
        .unwrap_or("played");
    Some(Use {
        is_anthropic,
        input: body.len() as u64 / 4,
        output: output.unwrap_or(COMPLETION).min(COMPLETION_MAX),
        model: model.to_owned(),
    })
}

impl Use {
    pub(super) fn costs(&self) -> UnitCosts {
        let all = [
            ("tokens", self.input + self.output),
            ("input_tokens", self.input),
            ("output_tokens", self.output),
        ];
        // These names are units, and the amounts are small.
        UnitCosts::new(all).unwrap_or_default()
    }

    /// Returns the answer of the API.
    pub(super) fn body(&self) -> String {
        let Self {
            input,
            output,
            model,
            ..
        } = self;
        let answer = if self.is_anthropic {
            json!({
                "id": "msg_played", "type": "message", "role": "assistant", "model": model,
                "content": [{"type": "text", "text": "played"}],
                "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": input, "output_tokens": output},
            })
        } else {
            json!({
                "id": "chatcmpl-played", "object": "chat.completion", "created": 0, "model": model,
                "choices": [{
                    "index": 0, "finish_reason": "stop", "logprobs": null,
                    "message": {"role": "assistant", "content": "played", "refusal": null},
                }],
                "usage": {
                    "prompt_tokens": input, "completion_tokens": output,
                    "total_tokens": input + output,
                },
            })
        };
        answer.to_string()
    }
}
