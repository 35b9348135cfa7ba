"""A small to-do list: tasks in a JSON file, a few commands on the terminal."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

STORE = Path("todo.json")


@dataclass
class Task:
    title: str
    done: bool = False

    def line(self) -> str:
        mark = "x" if self.done else " "
        return f"[{mark}] {self.title}"


class TodoList:
    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks

    def add(self, title: str) -> Task:
        task = Task(title)
        self.tasks.append(task)
        return task

    def finish(self, number: int) -> None:
        self.tasks[number - 1].done = True

    def remove(self, number: int) -> None:
        del self.tasks[number - 1]

    def open_tasks(self) -> list[Task]:
        return [task for task in self.tasks if not task.done]


def load(store: Path = STORE) -> TodoList:
    if not store.exists():
        return TodoList([])
    return TodoList([Task(**fields) for fields in json.loads(store.read_text())])


def save(todo: TodoList, store: Path = STORE) -> None:
    store.write_text(json.dumps([asdict(task) for task in todo.tasks], indent=2))


def main(args: list[str]) -> int:
    todo = load()
    match args:
        case ["add", title]:
            todo.add(title)
        case ["done", number]:
            todo.finish(int(number))
        case ["rm", number]:
            todo.remove(int(number))
        case []:
            for number, task in enumerate(todo.open_tasks(), start=1):
                print(f"{number}. {task.line()}")
        case _:
            print("usage: todo.py [add TITLE | done N | rm N]")
            return 2
    save(todo)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
