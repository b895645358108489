// A field whose text the rows or boxes of a view are searched for.

interface Props {
  value: string;
  placeholder: string;
  onInput: (text: string) => void;
}

export function Search({ value, placeholder, onInput }: Props) {
  return (
    <label class="choice">
      <span>Search</span>
      <input
        type="search"
        value={value}
        placeholder={placeholder}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </label>
  );
}
