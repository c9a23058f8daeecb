"""The Synthesizer's rows side by side: translation, language, sentences, heads."""
