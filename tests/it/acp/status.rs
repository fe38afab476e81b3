//! What `talaria status` says about processes, asked of the real program.

use serde_json::{Value, json};

use super::scripted_agent::{Script, ScriptedAgent};
use crate::support::binary::Talaria;

#[tokio::test]
async fn the_operator_sees_the_processes_of_each_agent_and_their_memory() {
    let scripted = ScriptedAgent::new(&Script::default());
    let entry = json!({ "command": scripted.command() });
    let config = json!({
        "agents": { "one": entry, "other": entry }, "default_agent": "one", "server": { "port": 0 },
    });
    let talaria = Talaria::new().config(&config.to_string()).args(["serve"]);
    let mut server = talaria.starts();
    server.serves().await;
    server.logs("running version").await;
    let lines = async |agent: &str| -> Vec<String> {
        let status: Value = serde_json::from_str(&talaria.does(["status", "--json"]).await.out).unwrap();
        let agents = status["agents"].as_array().unwrap().clone();
        let about = agents.into_iter().find(|about| about["name"] == agent).unwrap();
        about["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    };
    let none = "Processes that run: 0, with 0 MiB of memory. All such agents together have at most 8.";
    assert_eq!((lines("one").await, lines("other").await), (vec![none.to_owned()], vec![none.to_owned()]));

    talaria.does(["ask", "hello"]).await.showed("hello\n");
    let [line] = lines("one").await.try_into().unwrap();
    let memory = line.strip_prefix("Processes that run: 1, with ").unwrap_or_else(|| panic!("{line}"));
    let memory = memory.split_once(" MiB").unwrap().0;
    assert!(memory.parse::<u64>().unwrap() >= 1, "{line}");
    assert_eq!(lines("other").await, [none], "each agent has its own");
    let shown = talaria.does(["status"]).await;
    assert!(shown.out.contains(&format!("one:\n  {line}")), "{}", shown.out);
}
